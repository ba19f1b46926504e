"""Word lists from which several kinds of requests draw."""

NAMES = ["Amara", "Bjorn", "Chiara", "Dmitri", "Esra", "Farid", "Greta", "Hiro", "Ines", "Jonas", "Kavya", "Luca", "Mina",
         "Noor", "Olek", "Petra", "Quentin", "Rosa", "Sanjay", "Tove", "Umberto", "Vera", "Wanda", "Yusuf", "Zofia"]

CITIES = ["Aarhus", "Bologna", "Cork", "Dresden", "Essen", "Florence", "Ghent", "Haarlem", "Innsbruck", "Jena", "Krakow",
          "Lyon", "Malmo", "Nantes", "Oulu", "Porto", "Riga", "Seville", "Tartu", "Utrecht", "Vilnius", "Warsaw"]

MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December"]

WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

FRUIT = ["apples", "apricots", "blueberries", "cherries", "figs", "grapes", "lemons", "mangoes", "oranges", "peaches", "pears",
         "plums", "quinces", "raspberries"]

GOODS = ["candles", "crayons", "envelopes", "jars of honey", "light bulbs", "marbles", "notebooks", "postcards", "ribbons",
         "seed packets", "stickers", "tea towels"]
