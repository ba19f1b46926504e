"""Arithmetic word problems after seven worked examples (about 890 shared tokens)."""
from .words import FRUIT, GOODS, NAMES, WEEKDAYS

EXAMPLES = [
    ("A ferry makes 6 crossings a day and carries 45 cars on each. On Sundays it makes 2 crossings fewer. How many cars can it "
     "carry from Monday to Sunday?",
     "From Monday to Saturday there are 6 days with 6 crossings each, which makes 6 x 6 = 36 crossings. On Sunday there are "
     "6 - 2 = 4 crossings. Together these are 36 + 4 = 40 crossings. Each carries 45 cars, so 40 x 45 = 1800 cars.", "1800"),
    ("Lena picks 18 baskets of plums. She gives a third of them to her neighbour and sells the others for 7 euros a basket. How "
     "much money does she get?",
     "A third of 18 baskets is 18 / 3 = 6 baskets, which she gives away. She has 18 - 6 = 12 baskets left to sell. At 7 euros "
     "each that makes 12 x 7 = 84 euros.", "84"),
    ("A tank holds 240 litres. A pump fills it at 16 litres a minute while a leak loses 4 litres a minute. How many minutes does "
     "it take to fill the empty tank?",
     "Each minute the pump adds 16 litres and the leak takes away 4, so the tank gains 16 - 4 = 12 litres a minute. To reach 240 "
     "litres it takes 240 / 12 = 20 minutes.", "20"),
    ("Omar reads 25 pages every evening from Monday to Friday and 40 pages on each day of the weekend. His book has 615 pages. "
     "How many weeks does he need?",
     "From Monday to Friday he reads 5 x 25 = 125 pages. On the weekend he reads 2 x 40 = 80 pages. In a week that makes "
     "125 + 80 = 205 pages. The book has 615 pages, so he needs 615 / 205 = 3 weeks.", "3"),
    ("Three friends share a taxi for 36 euros and a dinner for 81 euros equally. One of them has already paid 20 euros. How much "
     "does this one still owe?",
     "Together they spend 36 + 81 = 117 euros. Shared by three that is 117 / 3 = 39 euros each. The one who paid 20 euros still "
     "owes 39 - 20 = 19 euros.", "19"),
    ("A train leaves at 9:40 and needs 1 hour and 35 minutes to the border, waits there for 20 minutes and needs another 50 "
     "minutes to the coast. How many minutes is the journey?",
     "To the border it takes 60 + 35 = 95 minutes. With the wait it is 95 + 20 = 115 minutes. The last part adds 50 minutes, "
     "which makes 115 + 50 = 165 minutes.", "165"),
    ("A gardener plants 5 rows of 14 tulips and 3 rows of 22 daffodils. A tenth of the flowers does not come up, rounded to the "
     "nearest flower. How many flowers come up?",
     "There are 5 x 14 = 70 tulips and 3 x 22 = 66 daffodils, together 70 + 66 = 136 flowers. A tenth of 136 is 13.6, rounded to "
     "14. So 136 - 14 = 122 flowers come up.", "122"),
]

HEAD = "Solve each problem step by step and end with the answer as a single number.\n\n"

PREFIX = HEAD + "".join(f"Question: {q}\nReasoning: {r}\nAnswer: {a}\n\n" for q, r, a in EXAMPLES)


def question(rng):
    name, other = rng.sample(NAMES, 2)
    fruit, goods, day = rng.choice(FRUIT), rng.choice(GOODS), rng.choice(WEEKDAYS)
    a, b, c = rng.randint(3, 19), rng.randint(2, 12), rng.randint(4, 30)
    big = rng.randint(4, 40) * 12
    return rng.choice([
        f"{name} buys {a} boxes of {goods} with {c} in each. {other} gets {b} of them. How many does {name} keep?",
        f"On {day} a market stall sells {big} {fruit} in bags of 6 and another {a} bags of 4. How many bags is that?",
        f"{name} walks {a} kilometres a day for {b} days and then rests for a day, again and again. How far does {name} get in "
        f"{2 * (b + 1)} days?",
        f"A crate holds {c} kilograms of {fruit}. {name} carries {a} crates and {other} carries {b} more than that. How many "
        f"kilograms do they carry together?",
        f"{name} has {big} {goods}. A quarter of them is given to {other}, and of the rest {a} are lost. How many are left?",
        f"A ticket costs {2 * c} euros and half as much for children. {name} takes {b} children and {a} other adults along. What "
        f"do all the tickets cost, with {name}'s own?",
        f"Every {day} {name} saves {c} euros and {other} saves {b} euros. After how many weeks do they have {(b + c) * a} euros "
        f"together?",
        f"{name} cuts a rope of {big} centimetres in 12 equal pieces and gives {other} {min(b, 11)} of them. How many "
        f"centimetres of rope remain?",
        f"A printer makes {c} pages a minute. {name} prints {a} copies of a booklet with {2 * c} pages. How many minutes does it "
        f"take?",
    ])


def request(rng, index):
    return {"prompt": f"{PREFIX}Question: {question(rng)}\nReasoning:"}
