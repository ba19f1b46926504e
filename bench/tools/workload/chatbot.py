"""Users of one assistant with six plug-ins (about 1,700 shared tokens)."""
import json

from .words import CITIES, MONTHS, NAMES, WEEKDAYS

# plug-in -> (what it is for, {operation: (what it does, {parameter: (type, required, meaning)})})
PLUGINS = {
    "weather": ("Forecasts and past weather for towns and regions.", {
        "forecast": ("Weather of the coming days.", {
            "place": ("string", True, "Name of a town, with the country if the name is ambiguous."),
            "days": ("integer", False, "How many days ahead, 1 to 10; 3 if absent."),
            "units": ("string", False, "Either metric or imperial; metric if absent.")}),
        "history": ("Weather of a day in the past.", {
            "place": ("string", True, "Name of a town."),
            "date": ("string", True, "The day, written as YYYY-MM-DD, not before 1950-01-01.")}),
    }),
    "calendar": ("Reads and changes the user's own calendar.", {
        "list": ("Entries between two days, both included.", {
            "from": ("string", True, "First day, YYYY-MM-DD."),
            "to": ("string", True, "Last day, YYYY-MM-DD.")}),
        "add": ("Make a new entry; asks nobody else.", {
            "title": ("string", True, "At most 80 characters."),
            "start": ("string", True, "Day and time, YYYY-MM-DD HH:MM, in the user's time zone."),
            "minutes": ("integer", True, "Length; 5 to 1440."),
            "invite": ("array", False, "Names of contacts that get an invitation.")}),
        "remove": ("Delete an entry. Always ask the user before.", {
            "entry": ("string", True, "Identifier as list gave it.")}),
    }),
    "travel": ("Trains and coaches between European towns. Sells no tickets.", {
        "connections": ("Connections in the order of departure.", {
            "origin": ("string", True, "Town or station."),
            "destination": ("string", True, "Town or station."),
            "depart": ("string", True, "Earliest departure, YYYY-MM-DD HH:MM."),
            "changes": ("integer", False, "Most changes allowed; any number if absent."),
            "bicycle": ("boolean", False, "Only connections that carry a bicycle.")}),
        "delays": ("Present delay of a running train.", {
            "train": ("string", True, "Kind and number, for example IC 2047.")}),
    }),
    "recipes": ("A collection of 40,000 tested recipes.", {
        "find": ("Recipes that fit what is in the kitchen.", {
            "ingredients": ("array", True, "What must be used, most important first."),
            "without": ("array", False, "What must not occur, such as nuts or gluten."),
            "minutes": ("integer", False, "Longest time from start to table."),
            "persons": ("integer", False, "Amounts are scaled to this number; 2 if absent.")}),
        "steps": ("The full text of one recipe.", {
            "recipe": ("string", True, "Identifier as find gave it.")}),
    }),
    "currency": ("Exchange rates of central banks, once each working day.", {
        "convert": ("An amount of money in another currency.", {
            "amount": ("number", True, "Not negative."),
            "from": ("string", True, "Three-letter code, for example DKK."),
            "to": ("string", True, "Three-letter code."),
            "date": ("string", False, "Day of the rate, YYYY-MM-DD; the latest if absent.")}),
    }),
    "library": ("Catalogue and loans of the public libraries.", {
        "search": ("Media by title, author or subject.", {
            "query": ("string", True, "Words to look for; all of them must occur."),
            "kind": ("string", False, "One of book, audiobook, film, game, map."),
            "branch": ("string", False, "Only what stands in this branch.")}),
        "reserve": ("Put a medium aside under the user's name for five days.", {
            "medium": ("string", True, "Identifier as search gave it."),
            "branch": ("string", True, "Where it will be picked up.")}),
        "loans": ("What the user has at home and when it is due.", {}),
    }),
}


def describe(name):
    purpose, operations = PLUGINS[name]
    lines = [f"## Plug-in {name}", purpose]
    for operation, (meaning, parameters) in operations.items():
        schema = {p: {"type": t, "required": r, "description": d} for p, (t, r, d) in parameters.items()}
        lines.append(f"- {name}.{operation}: {meaning}")
        lines.append(f"  parameters: {json.dumps(schema)}")
    return "\n".join(lines)


SYSTEM = "\n".join([
    "You are the assistant of a public service desk. You answer in the user's language, briefly and without decoration. Six "
    "plug-ins are at your disposal. To use one, write a single line that begins with CALL, then the operation, then its "
    "parameters as one JSON object, and stop; the next message holds what the plug-in returned.",
    "",
    "Rules:",
    "1. Use a plug-in only if the answer depends on it. Small talk and general knowledge need none.",
    "2. Take every value from the conversation. If a required parameter is missing, ask one short question instead of guessing.",
    "3. One call at a time. If a request needs several, begin with the one that the others depend on.",
    "4. Whatever changes the user's data (calendar.add, calendar.remove, library.reserve) is confirmed by the user first, "
    "unless the request leaves nothing open.",
    "5. If no plug-in fits, say so in one sentence and tell what you can do instead.",
    "",
    *(describe(name) for name in PLUGINS),
    "",
    "## Examples",
    "User: Will I need an umbrella in Ghent tomorrow?",
    'Assistant: CALL weather.forecast {"place": "Ghent, Belgium", "days": 1}',
    "User: How much is 250 Danish crowns in euros?",
    'Assistant: CALL currency.convert {"amount": 250, "from": "DKK", "to": "EUR"}',
    "User: Something with leeks for four, but my sister must not eat nuts.",
    'Assistant: CALL recipes.find {"ingredients": ["leeks"], "without": ["nuts"], "persons": 4}',
    "User: Who wrote the first cookery book?",
    "Assistant: Nobody knows for certain; recipes survive on Babylonian clay tablets, without a name.",
    "User: Cancel my appointment.",
    "Assistant: Which appointment do you mean, and on which day is it?",
])

DISHES = ["chickpeas", "leeks", "pumpkin", "red lentils", "spinach", "sweet potatoes", "trout", "courgettes", "mushrooms"]
AVOID = ["nuts", "gluten", "milk", "eggs", "onions", "soy"]
SUBJECTS = ["beekeeping", "the history of maps", "sailing knots", "volcanoes", "chess openings", "Baroque gardens", "bread",
            "night trains", "moss and lichen", "solar power at home"]
CODES = ["CHF", "CZK", "DKK", "GBP", "HUF", "JPY", "NOK", "PLN", "SEK", "USD"]
ERRANDS = ["a dentist appointment", "choir practice", "lunch with the auditors", "a call with the landlord",
           "the parents' evening", "a bicycle repair", "the quarterly review"]


def question(rng):
    origin, destination = rng.sample(CITIES, 2)
    day, month, number = rng.choice(WEEKDAYS), rng.choice(MONTHS), rng.randint(2, 28)
    name, hour = rng.choice(NAMES), rng.randint(8, 19)
    have, other = rng.sample(DISHES, 2)
    code, target = rng.sample(CODES, 2)
    return rng.choice([
        f"I have to be in {destination} by {hour}:30 on {day}. Which trains from {origin} get me there with at most one change?",
        f"Can I take my bicycle on a train from {origin} to {destination} on {month} {number}?",
        f"What will the weather be like in {destination} over the next {number % 9 + 2} days?",
        f"How cold did it get in {origin} on {month} {number}, {1950 + number * 2}?",
        f"Put {rng.choice(ERRANDS)} in my calendar for {month} {number} at {hour}:15, and invite {name}.",
        f"What do I have on between {month} {number % 14 + 1} and {month} {number % 14 + 9}?",
        f"I still have {have} and {other}. What can I cook for {number % 6 + 2} people without {rng.choice(AVOID)}?",
        f"Something quick with {have}, please, not more than {number + 10} minutes.",
        f"How many {target} do I get for {number * 35} {code}, at the rate of {month} 1?",
        f"Does any branch in {origin} have a {rng.choice(['book', 'film', 'audiobook'])} on {rng.choice(SUBJECTS)}?",
        f"Please reserve the newest book about {rng.choice(SUBJECTS)} for me; I pick it up in the {destination} branch.",
        f"Is IC {number * 71} from {origin} late again?",
        f"{name} asks whether we can meet in {destination} next {day}. Am I free after {hour} o'clock?",
        f"Write a friendly note to {name}, who waited for me in {origin} in vain on {day}.",
    ])


def request(rng, index):
    return {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(rng)}]}
