"""A policy that plans which tools to call: four prompts in two families (about 1,300 and 1,430 shared tokens).

The prompts of a family have instructions and tools in common and differ in their worked examples, so the requests form a tree.
"""
import json

from .words import CITIES, FRUIT, GOODS, MONTHS, NAMES, WEEKDAYS

TABLE_TOOLS = """\
You plan how a question about a small table is answered. You do not answer it yourself. Your plan is a list of tool names in the \
order in which they run; each tool sees the question, the table and what the tools before it wrote. A good plan is as short as \
the question allows.

Tools:
- row_filter: keeps the rows that the question is about and drops the others. Worth it only if the table has more than five rows \
and the question speaks of a few of them. Not for questions about all rows, such as totals, ranges or the largest value.
- column_filter: keeps the columns that the question is about. Worth it only if the table has more than two columns. The first \
column always stays.
- describe_table: writes one sentence on what each column holds and in which unit. Helps where headings are abbreviated, where \
units differ between columns or where the title matters.
- recall: writes down general knowledge that the question presupposes, such as how a median is taken, how much a dozen is or \
which months make a quarter. It knows nothing about the table.
- write_program: writes a short program that stores the cells it needs in variables, computes the result and prints it. For \
questions with arithmetic of more than one step.
- check_program: reads the program again and repairs mistakes in names, units and indentation before it runs.
- run_program: runs the program and hands on what it printed.
- reason: writes a solution in plain sentences, for questions that need comparing, ordering or reading a value rather than \
arithmetic.
- pick_option: chooses, among the options that the question offers, the one that fits best what is known so far.
- answer: brings the result into the form that was asked for. Always the last one, and always there.

Rules:
1. run_program comes after write_program; check_program may stand between them.
2. Either a program is written and run, or reason is used, not both.
3. pick_option occurs if and only if the question has options.
4. Filters come first. Do not filter by row and column if the table has fewer than twelve cells.
5. Tables come as text, one row a line with bars between the cells. The first line holds the headings. A title may stand before \
it; it often says the unit or the year, and a plan must not lose it.
6. If the question cannot be answered from the table, plan recall, reason and answer, so that the answer can say what is missing.

"""

SCIENCE_TOOLS = """\
You plan how a question from a school's science lessons is answered. You do not answer it yourself. Your plan is a list of tool \
calls, one a line, each written as name(argument); the argument is a short phrase of yours, or nothing. The tools run in your \
order and each sees what the earlier ones found.

Tools:
- look_at_picture(): describes the picture that comes with the question in two or three sentences. Only if there is a picture; \
whether there is one is told below the question.
- read_labels(): lists all text that can be read in the picture with its place, such as the names at a map's countries or the \
values at a diagram's axes.
- search_web(phrase): finds short passages from an encyclopaedia. For facts that change, for persons, places and numbers. The \
phrase must make sense on its own, without the question.
- recall(topic): writes down what a textbook says on a topic, in at most five sentences. For definitions, laws and things that \
every textbook has. Quicker and more dependable than search_web where both would do.
- define(word): the meanings of a single word with an example of each. For questions on language, or if one rare word decides.
- measure(quantity): takes a length, an angle or a value at an axis from the picture, with its unit.
- compute(expression): evaluates an expression with numbers, units and the usual functions. It knows no variables; put in the \
values that earlier tools found.
- compare(criterion): orders the options or the things in question by one criterion and gives reasons.
- experiment(setup): tells what happens step by step in a simple experiment, and which quantities are kept, changed and observed.
- reason(): joins everything found so far in a short explanation that leads to the solution.
- answer(): gives the letter of the right option, or a single sentence if there are none. Always last, and always there.

Rules:
1. reason comes directly before answer unless compute alone settles the question.
2. read_labels and measure come after look_at_picture, and never without a picture.
3. At most one search_web and at most two recall; ask for what you miss, not for the whole question.
4. Do not call a tool whose result you could not use. Four calls are enough nearly always.
5. Options that are plainly wrong need no tool of their own.
6. The same question may come with other options; do not rely on their order.
7. The argument of a call stands on one line and holds no brackets. If you want to ask for two things, ask for the one that decides.
8. Questions on health or dangerous substances are planned like any other; the tool that writes the answer adds what care demands.
9. If the question names a grade or an age, let recall and reason keep to what is taught there.

"""


def table_example(question, title, rows, plan):
    return f"Question: {question}\nTable: {title}\n{rows}\nPlan: {json.dumps(plan)}\n\n"


def science_example(question, options, picture, plan):
    return f"Question: {question}\nOptions: {options}\nPicture: {picture}\nPlan:\n" + "\n".join(plan) + "\n\n"


TABLE_EXAMPLES = [
    "".join([
        table_example("How much more did the harbour museum take in April than in March?", "Museum tickets sold",
                      "Month | Tickets | Price\nMarch | 410 | 6.50\nApril | 525 | 6.50\nMay | 498 | 7.00",
                      ["write_program", "run_program", "answer"]),
        table_example("Which stop does the bus reach directly before the castle?", "Line 12",
                      "Stop | Arrives\nStation | 9:02\nMarket | 9:07\nBridge | 9:15\nCastle | 9:21", ["reason", "answer"]),
        table_example("What is the median number of goals?", "Goals by player",
                      "Player | Goals\nIda | 3\nBo | 7\nSelma | 2\nKaj | 5\nRuth | 5",
                      ["recall", "write_program", "run_program", "answer"]),
        table_example("Is the price of a lamp (A) below or (B) above that of two chairs?", "Price list",
                      "Item | Price\nLamp | 48 EUR\nChair | 26 EUR\nRug | 77 EUR",
                      ["write_program", "run_program", "pick_option", "answer"]),
        table_example("How many parcels weighed at least 12 kg?", "Weights of parcels (stem and leaf, kg)",
                      "Stem | Leaf\n0 | 4 7 9 9\n1 | 0 2 2 5 8\n2 | 1 1 3",
                      ["describe_table", "recall", "reason", "answer"]),
        table_example("How much does a dozen large eggs cost on Friday?", "Egg stand, price of one egg by day and size",
                      "Day | Small | Medium | Large\nWednesday | 0.21 | 0.25 | 0.30\nFriday | 0.19 | 0.24 | 0.28",
                      ["column_filter", "recall", "write_program", "run_program", "answer"]),
        table_example("Between which two weeks did the sales of lanterns fall the most?", "Lanterns",
                      "Week | Sold\n1 | 88\n2 | 91\n3 | 70\n4 | 62\n5 | 64", ["write_program", "check_program", "run_program", "answer"]),
        table_example("Who has (A) the earliest or (B) the latest shift among the drivers?", "Shifts",
                      "Name | Work | Begins\nElin | driver | 5:40\nTom | porter | 6:00\nJule | driver | 13:10",
                      ["row_filter", "reason", "pick_option", "answer"]),
        table_example("What do three notebooks and a folder cost in the sale?", "Stationer, old and new prices",
                      "Article | Before | Sale\nnotebook | 2.40 | 1.80\nfolder | 3.90 | 3.10\ninkwell | 6.50 | 5.20",
                      ["column_filter", "write_program", "run_program", "answer"]),
        table_example("How many pupils of form 7b play no instrument?", "Instruments in form 7b",
                      "Instrument | Pupils\nviolin | 3\nflute | 5\npiano | 6", ["recall", "reason", "answer"]),
        table_example("What is the mode of the shoe sizes?", "Shoes lent at the bowling alley",
                      "Size | Pairs\n37 | 4\n38 | 11\n39 | 9\n41 | 2", ["recall", "reason", "answer"]),
    ]),
    "".join([
        table_example("A family buys two adult and three child tickets. What do they pay?", "Swimming pool",
                      "Ticket | Price\nadult | 5.40\nchild | 2.90\nten visits | 45.00", ["write_program", "run_program", "answer"]),
        table_example("Which of the rivers is the second longest?", "Rivers of a region",
                      "River | Length (km)\nAlm | 86\nLehn | 142\nOder | 131\nWip | 57", ["reason", "answer"]),
        table_example("What fraction of the bicycles are red?", "Bicycles in the yard",
                      "Colour | Number\nred | 9\nblue | 14\nblack | 22", ["recall", "write_program", "run_program", "answer"]),
        table_example("Does the supply at 4 euros lead to (A) a shortage or (B) a surplus?", "Market for baskets",
                      "Price | Demand | Supply\n3 | 120 | 80\n4 | 95 | 110\n5 | 60 | 140",
                      ["recall", "reason", "pick_option", "answer"]),
        table_example("How long is the film in the evening?", "Cinema, hall 2",
                      "Film | Begins | Ends\nThe Well | 14:10 | 15:55\nNorth Wind | 17:00 | 19:20\nAsh | 20:30 | 22:45",
                      ["row_filter", "write_program", "run_program", "answer"]),
        table_example("What was the rate of change between 2018 and 2020?", "Members of the rowing club",
                      "Year | Members\n2016 | 140\n2018 | 152\n2020 | 186\n2022 | 181",
                      ["recall", "write_program", "check_program", "run_program", "answer"]),
        table_example("Anna has 20 euros. Can she afford the paint and the brush, (A) yes or (B) no?", "Art shop",
                      "Article | EUR\npaint | 12.80\nbrush | 6.90\ncanvas | 15.00",
                      ["write_program", "run_program", "pick_option", "answer"]),
        table_example("In which month was the difference between rain and sun hours smallest?", "Climate of a valley",
                      "Month | Rain (mm) | Sun (h) | Wind (km/h)\nMay | 71 | 198 | 11\nJune | 88 | 214 | 9\nJuly | 96 | 230 | 9",
                      ["column_filter", "describe_table", "write_program", "run_program", "answer"]),
        table_example("How many more pages did Signe read than planned?", "Reading plan",
                      "Name | Planned | Read\nSigne | 120 | 171\nAxel | 90 | 66\nDora | 150 | 150",
                      ["row_filter", "write_program", "run_program", "answer"]),
        table_example("Which class collected the least paper in kilograms?", "Collection of old paper",
                      "Class | Paper\n5a | 0.21 t\n5b | 188 kg\n5c | 0.19 t", ["describe_table", "recall", "reason", "answer"]),
        table_example("What was the average attendance of the three concerts?", "Concerts in the town hall",
                      "Evening | Guests\nFriday | 212\nSaturday | 305\nSunday | 176", ["write_program", "run_program", "answer"]),
    ]),
]

SCIENCE_EXAMPLES = [
    "".join([
        science_example("Which of these materials would keep the tea in the cup warm for longest?",
                        "(A) glass (B) thin steel (C) cork", "no",
                        ["recall(heat conduction of glass, metal and cork)", "compare(heat conduction)", "reason()", "answer()"]),
        science_example("Between which two of the labelled points does the water flow fastest?",
                        "(A) P and Q (B) Q and R (C) R and S", "yes",
                        ["look_at_picture()", "read_labels()", "recall(flow through narrow and wide sections)", "reason()",
                         "answer()"]),
        science_example("A cyclist covers 18 km in 45 minutes. What is the average speed?", "(A) 13.5 km/h (B) 24 km/h (C) 40 km/h",
                        "no", ["compute(18 km / (45 min) in km/h)", "answer()"]),
        science_example("Which word in the sentence 'The hollow log was home to a shrew' is used as an adjective?",
                        "(A) hollow (B) home (C) log", "no", ["define(hollow)", "reason()", "answer()"]),
        science_example("How tall is the plant on the fourth day?", "(A) 6 cm (B) 9 cm (C) 12 cm", "yes",
                        ["look_at_picture()", "measure(height at day 4)", "answer()"]),
        science_example("Two seedlings stand in the same soil, one in a dark cupboard. What is examined here?",
                        "(A) the effect of soil (B) the effect of light", "no",
                        ["experiment(seedlings with and without light)", "reason()", "answer()"]),
        science_example("Which country on the map has no access to the sea?", "(A) Bolivia (B) Chile (C) Peru", "yes",
                        ["look_at_picture()", "read_labels()", "search_web(countries of South America without a coast)", "reason()",
                         "answer()"]),
        science_example("The scale shows 240 g with the stone and 95 g without. What is the stone's mass?",
                        "(A) 95 g (B) 145 g (C) 335 g", "yes", ["compute(240 g - 95 g)", "answer()"]),
        science_example("Which of these is a chemical change?", "(A) melting ice (B) burning paper (C) folding a sheet", "no",
                        ["recall(physical and chemical changes)", "reason()", "answer()"]),
        science_example("What does the barn owl in the food web eat?", "(A) shrews (B) clover (C) foxes", "yes",
                        ["look_at_picture()", "read_labels()", "recall(arrows in food webs)", "reason()", "answer()"]),
    ]),
    "".join([
        science_example("Which animal's feet are made for climbing smooth walls?", "(A) gecko (B) mole (C) heron", "no",
                        ["recall(feet of gecko, mole and heron)", "compare(grip on smooth walls)", "reason()", "answer()"]),
        science_example("What does the arrow in the circuit show?", "(A) the current (B) the voltage (C) the resistance", "yes",
                        ["look_at_picture()", "recall(arrows in circuit diagrams)", "reason()", "answer()"]),
        science_example("A magnet pulls a nail over 2 cm but not over 5 cm. What does the experiment show?",
                        "(A) distance weakens the pull (B) nails lose their iron", "no",
                        ["experiment(magnet and nail at growing distance)", "reason()", "answer()"]),
        science_example("A tank of 60 litres loses 1.5 litres an hour. After how many hours is half of it gone?",
                        "(A) 20 (B) 30 (C) 40", "no", ["compute(60 / 2 / 1.5)", "answer()"]),
        science_example("In which year was the comet seen that the text calls 'the hairy star'?", "(A) 1066 (B) 1492 (C) 1815", "no",
                        ["search_web(comet called hairy star in medieval chronicles)", "reason()", "answer()"]),
        science_example("Which solution in the glasses has the highest concentration?", "(A) left (B) right (C) they are equal", "yes",
                        ["look_at_picture()", "measure(particles in each glass)", "recall(concentration)", "reason()", "answer()"]),
        science_example("Which of these is the opposite of 'scarce'?", "(A) frightening (B) plentiful (C) costly", "no",
                        ["define(scarce)", "reason()", "answer()"]),
        science_example("Which of the four labelled layers is the oldest?", "(A) layer 1 (B) layer 2 (C) layer 4", "yes",
                        ["look_at_picture()", "read_labels()", "recall(order of rock layers)", "reason()", "answer()"]),
        science_example("Pepper on water flees from a drop of soap. What changes?",
                        "(A) the surface tension (B) the colour of the water", "no",
                        ["experiment(pepper on water and a drop of soap)", "recall(surface tension)", "reason()", "answer()"]),
        science_example("How far is it from the lighthouse to the pier on the map?", "(A) 300 m (B) 450 m (C) 900 m", "yes",
                        ["look_at_picture()", "read_labels()", "measure(distance from lighthouse to pier)", "answer()"]),
    ]),
]

PROMPTS = [tools + examples + "Now plan for the question that follows. Write the plan and nothing else."
           for pair in zip(TABLE_EXAMPLES, SCIENCE_EXAMPLES) for tools, examples in zip((TABLE_TOOLS, SCIENCE_TOOLS), pair)]

TOPICS = [("gases, liquids or solids", "has a shape of its own", ["water vapour", "honey", "chalk"]),
          ("rocks", "is formed when lava cools quickly", ["obsidian", "marble", "sandstone"]),
          ("organs", "filters the blood", ["kidney", "lung", "stomach"]),
          ("planets", "takes longest to circle the sun", ["Mars", "Saturn", "Neptune"]),
          ("trees", "keeps its leaves in winter", ["holly", "birch", "oak"]),
          ("instruments", "shows the pressure of air", ["barometer", "thermometer", "hygrometer"]),
          ("metals", "is attracted by a magnet", ["nickel", "copper", "tin"]),
          ("animals", "breathes through gills", ["newt larva", "whale", "tortoise"])]


def table_question(rng):
    title, unit, items = rng.choice([("Stall of " + rng.choice(NAMES), "crates", rng.sample(FRUIT, 4)),
                                     ("Stock of the shop in " + rng.choice(CITIES), "pieces", rng.sample(GOODS, 4)),
                                     ("Overnight guests in " + rng.choice(MONTHS), "guests", rng.sample(CITIES, 4)),
                                     ("Hours worked on " + rng.choice(WEEKDAYS), "hours", rng.sample(NAMES, 4))])
    values = [rng.randint(3, 240) for _ in items]
    first, second = rng.sample(items, 2)
    asked = rng.choice([
        f"How much do {first} and {second} make together?",
        f"What is the mean of all rows?",
        f"What is the range of the numbers?",
        f"Which row has the second smallest number?",
        f"Is the number of {first} (A) smaller or (B) larger than that of {second}?",
        f"By how many {unit} would {first} have to grow to reach twice the number of {second}?",
        f"Which share of the total belongs to {second}, in percent?"])
    rows = "\n".join(f"{item} | {value}" for item, value in zip(items, values))
    return f"Question: {asked}\nTable: {title}\nName | Number of {unit}\n{rows}"


def science_question(rng):
    kind, trait, members = rng.choice(TOPICS)
    members = rng.sample(members, 3)
    number, time = rng.randint(2, 60), rng.randint(2, 12)
    name = rng.choice(NAMES)
    return rng.choice([
        f"Question: Which of these {kind} {trait}?\nOptions: (A) {members[0]} (B) {members[1]} (C) {members[2]}\nPicture: "
        f"{rng.choice(['yes', 'no'])}",
        f"Question: {name} asks which of the {kind} in the picture {trait}.\nOptions: (A) {members[0]} (B) {members[1]}\n"
        f"Picture: yes",
        f"Question: {name} walks {number * time} metres in {time} minutes. How fast is that?\nOptions: (A) {number} m/min (B) "
        f"{number + time} m/min\nPicture: no",
        f"Question: A lamp of {number} watts burns for {time} hours. How much energy does it need?\nOptions: (A) {number * time} Wh "
        f"(B) {number + time} Wh (C) {number * 60} Wh\nPicture: no",
        f"Question: At minute {number} of the recording, what does the curve for {rng.choice(CITIES)} do?\nOptions: (A) it rises "
        f"(B) it falls\nPicture: yes",
        f"Question: {name} waters one pot of cress with {number} ml and another with {number * 2} ml a day. What is being tested?\n"
        f"Options: (A) the amount of water (B) the kind of seed\nPicture: no"])


def request(rng, index):
    which = index % len(PROMPTS)
    question = (table_question if which % 2 == 0 else science_question)(rng)
    return {"messages": [{"role": "system", "content": PROMPTS[which]}, {"role": "user", "content": question}]}
