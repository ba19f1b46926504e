"""Questions about one document, given as its metadata (about 4,300 shared tokens)."""
import json
import random

TITLE = "Handbook of the Lindvale district heating network, fourth edition"

# chapter -> its sections
CHAPTERS = {
    "Purpose and scope": ["Who should read this", "Terms and units", "Laws and standards", "Changes since the third edition"],
    "The network at a glance": ["History", "Districts served", "Key figures", "Map of the main lines"],
    "Heat sources": ["Waste heat of the glassworks", "Biomass boilers", "Lake water heat pumps", "Peak and reserve boilers",
                     "Order of use"],
    "Heat storage": ["Tank at the east gate", "Seasonal pit storage", "Loading and unloading", "Losses over a year"],
    "Pipes and chambers": ["Pipe types and insulation", "Laying depth", "Expansion joints", "Inspection chambers",
                           "Leak detection wires", "Register of materials"],
    "Pumps and pressure": ["Main pumps", "Booster stations", "Pressure zones", "Holding pressure at standstill", "Water hammer"],
    "Water quality": ["Limits", "Softening and degassing", "Sampling points", "What to do when a limit is passed"],
    "House stations": ["Types of stations", "Connection of a new house", "Heat meters", "Control settings",
                       "Hygiene of hot tap water", "Yearly inspection"],
    "Control room": ["Screens and alarms", "Shift plan", "Forecast of the load", "Remote switching"],
    "Operation in winter": ["Start of the season", "Supply temperature by weather", "Frost watch", "Load shedding"],
    "Operation in summer": ["Lowered temperatures", "Planned outages", "Flushing of dead ends"],
    "Faults and emergencies": ["Classes of faults", "Burst pipes", "Failure of a heat source", "Power cuts", "Telling customers",
                               "Report and review"],
    "Maintenance": ["Yearly plan", "Valves", "Pumps and motors", "Heat exchangers", "Spare parts"],
    "Training": ["Introduction of new staff", "Certificates and their renewal", "Emergency drills"],
    "Money": ["Cost of heat", "Tariffs", "Meter reading and billing", "Investments until the next edition"],
}

FIGURES = ["Overview", "Photograph", "Sketch", "Diagram", "Flow chart"]
TABLES = ["Limits and target values", "Responsible persons", "Comparison of the last three years", "Dates and intervals",
          "Parts and suppliers"]


def build():
    """The document's sections with their pages, figures and tables; always the same."""
    rng = random.Random("lindvale")
    sections, page, figure, table = [], 5, 0, 0
    for number, (chapter, names) in enumerate(CHAPTERS.items(), 1):
        head = {"section": str(number), "heading": chapter, "pages": [page, page]}
        sections.append(head)
        for sub, name in enumerate(names, 1):
            last = page + rng.randint(0, 4)
            entry = {"section": f"{number}.{sub}", "heading": name, "pages": [page, last]}
            if rng.random() < 0.45:
                figure += 1
                entry["figures"] = [{"no": figure, "caption": f"{rng.choice(FIGURES)}: {name.lower()}",
                                     "page": rng.randint(page, last)}]
            if rng.random() < 0.4:
                table += 1
                entry["tables"] = [{"no": table, "caption": rng.choice(TABLES), "rows": rng.randint(4, 38),
                                    "page": rng.randint(page, last)}]
            sections.append(entry)
            page = last + rng.randint(0, 1)
        head["pages"][1] = last
        page = last + 1
    return sections


SECTIONS = build()
LAST_PAGE = SECTIONS[-1]["pages"][1]

SYSTEM = "\n".join([
    "You help people find their way in one document. Its text is not in front of you, only its structure below. To look something "
    "up, answer with one line: FETCH pages A to B, FETCH section S, FETCH figure N or FETCH table N. If the structure alone "
    "answers the question, answer directly and name the section. If the document cannot hold the answer, say so.",
    "",
    f"Title: {TITLE}. Pages: {LAST_PAGE}. Structure, one section a line:",
    *(json.dumps(entry) for entry in SECTIONS),
])

ROLES = ["the control room", "a new colleague on night shift", "the accountant", "a house owner", "the fire service",
         "the works council", "an auditor", "a plumber", "the mayor's office", "a student"]
ASPECTS = ["the costs", "the responsible person", "the time limits", "the safety rules", "the temperatures", "the yearly figures",
           "the exceptions", "the steps in order"]


def question(rng):
    entry, other = rng.sample([s for s in SECTIONS if "." in s["section"]], 2)
    heading, role, aspect = entry["heading"], rng.choice(ROLES), rng.choice(ASPECTS)
    page = rng.randint(5, LAST_PAGE)
    return rng.choice([
        f"What does the handbook say about {aspect} under '{heading}'?",
        f"Which figures and tables belong to section {entry['section']}?",
        f"Summarise '{heading}' for {role} in three sentences.",
        f"On which page does '{heading}' begin, and how long is it?",
        f"Compare {aspect} in sections {entry['section']} and {other['section']}.",
        f"I have page {page} open. Which section is that, and what comes after it?",
        f"{role[0].upper()}{role[1:]} wants to know about {aspect}. Is '{heading}' or '{other['heading']}' the better place to look?",
        f"Is there a table with more than {rng.randint(5, 35)} rows in the chapter that '{heading}' belongs to?",
        f"Which chapters should {role} read before section {entry['section']}?",
        f"Between pages {min(page, LAST_PAGE - 6)} and {min(page, LAST_PAGE - 6) + rng.randint(2, 6)}, which figures are shown?",
    ])


def request(rng, index):
    return {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(rng)}]}
