"""Text to remember: Zipfian messages by the million, and conversations in which facts are given, changed and asked for.

`archive_text` is for speed: words of which a few are everywhere and most are rare, as in any language. `cases` is for
quality: one user's sessions over months, with facts given once among hundreds of other turns, and questions that come
much later in other words. All of it follows from a seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from bench.memory.datasets import Case, Question, SourceMessage

from shepherd.memory.records import Entry


def several(text: str) -> list[str]:
    """The pieces of a text between `|`, or else its words."""
    return text.split("|") if "|" in text else text.split()


# -- by the million ------------------------------------------------------------------------------------------------

FUNCTION_WORDS = several(
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which "
    "you were her all she there would their we him been has when who will no more if out so said what up its about "
    "than into them can only other new some could time these two may then do first any my now such like our over me"
)
"""The most frequent words of English come first, as they do in real text."""
SYLLABLES = [
    a + b for a in several("b c d f g h l m n p r s t v br cr dr fl gr pl st tr") for b in several("a e i o u")
]


def vocabulary(size: int = 60_000) -> list[str]:
    """Words by rank, most frequent first; each once."""
    made = dict.fromkeys(FUNCTION_WORDS)
    rng = random.Random(1)
    while len(made) < size:
        made["".join(rng.choices(SYLLABLES, k=rng.choice((2, 2, 3, 3, 3, 4)))) + rng.choice("lmnrst")] = None
    return list(made)


def archive_text(n: int, words: list[str], *, seed: int = 7, chunk: int = 10_000) -> Iterator[str]:
    """`n` messages of 280 characters on average, in turn a user's of 8 to 39 words and an assistant's of 28 to 98."""
    rng = np.random.default_rng(seed)
    weights = 1 / (np.arange(len(words)) + 2.7) ** 1.07
    edges = np.cumsum(weights / weights.sum())
    for start in range(0, n, chunk):
        count = min(chunk, n - start)
        lengths = rng.integers(8, 40, count)
        lengths[1::2] += rng.integers(20, 60, len(lengths[1::2]))
        drawn = np.minimum(np.searchsorted(edges, rng.random(int(lengths.sum()))), len(words) - 1)
        at = 0
        for length in lengths:
            yield " ".join([words[rank] for rank in drawn[at : at + length]])
            at += length


def queries(words: list[str], n: int, *, seed: int = 11) -> dict[str, list[str]]:
    """Questions to an archive of such text, `n` of each kind; 0-based ranks of their words are in the kind's name."""
    rng = random.Random(seed)

    def some(*ranges: tuple[int, int, int]) -> str:
        drawn = [words[rng.randrange(low, high)] for count, low, high in ranges for _ in range(count)]
        rng.shuffle(drawn)
        return " ".join(drawn)

    kinds: dict[str, Callable[[], str]] = {
        "3 rare words (5k-60k)": lambda: some((3, 5_000, len(words))),
        "6 middling words (300-5k)": lambda: some((6, 300, 5_000)),
        "a sentence: 6 function words, 1 frequent, 4 middling": lambda: some(
            (6, 0, 90), (1, 100, 300), (4, 300, 5_000)
        ),
        "12 frequent words (100-300)": lambda: some((12, 100, 300)),
        "function words alone": lambda: some((8, 0, 90)),
        "1 rare word": lambda: some((1, 5_000, len(words))),
        "a word that nobody said": lambda: some((1, 5_000, len(words))) + "qx",
    }
    return {kind: [make() for _ in range(n)] for kind, make in kinds.items()}


# -- facts and questions -------------------------------------------------------------------------------------------

PEOPLE = several(
    "Priya Marta Tobias Helen Yusuf Ingrid Callum Beatriz Dmitri Fatima Oskar Leila Rowan Agnes Hamid Noor Petra Silas "
    "Wanda Emeka Greta Ravi Thalia Bruno Sunniva Kofi Maeve Anton Delphine Idris"
)
HARD_NAMES = {  # as told: as asked
    "Zoë": "zoe", "Siobhán O'Rourke": "siobhan o'rourke", "Jürgen": "jurgen", "Anne-Marie": "Anne Marie",
    "François": "FRANCOIS", "José Luís": "jose luis", "Bjørn-Åge": "Bjørn-Åge", "D'Angelo": "d'angelo",
    "Nguyễn Thị Hoa": "Nguyen Thi Hoa", "Mary-Kate": "mary kate", "Łukasz": "łukasz", "Renée": "Renee",
}  # fmt: skip
PROJECTS = several(
    "Halcyon Bluefin Meridian Quartzite Larkspur Obsidian Tamarind Foxglove Zephyrine Marlin Juniper Saltbox Wayfarer "
    "Cobalt Thornbury Pemberton"
)
VALUES = {
    "food": several("peanuts shellfish celery sesame mustard lupins kiwi buckwheat walnuts mango"),
    "city": several("Tromsø Ghent Ljubljana Porto Galway Tartu Bologna Aarhus Graz Salamanca Utrecht Vilnius"),
    "job": several("locksmith|paediatric nurse|tram driver|glassblower|tax adviser|beekeeper|court reporter"),
    "instrument": several("bassoon cello accordion harpsichord trombone oboe sitar banjo viola"),
    "car": several("green Volvo|rusty Fiat Panda|yellow Saab|grey Skoda estate|red Citroën van|blue Lada"),
    "pet": several("Biscuit Moriarty Pickles Waffles Nimbus Turnip Sergeant Marmalade Figaro Bramble"),
    "book": several("The Leopard|Middlemarch|Stoner|Beloved|Pnin|The Magic Mountain|Austerlitz"),
    "thing": several("orbital sander|tent|fondue set|bicycle pump|projector|sewing machine|chainsaw|telescope"),
    "present": several("brass compass|jar of saffron|wool blanket|chess clock|fountain pen|cast-iron pan"),
    "place": several("under the third flowerpot|behind the fuse box|in the blue biscuit tin|inside the piano stool"),
    "db": several("Postgres MariaDB Redis Cassandra DuckDB Firebird"),
    "company": several("Ashworth & Sons|Kestrel Heating|Nordlys Energi|Van Damme Installaties"),
    "colour": several("Elephant's Breath|Mizzle|Dead Salmon|Oval Room Blue|Setting Plaster|Pigeon"),
    "symptom": several(
        "the export hangs at ninety per cent|logins fail behind the proxy|thumbnails come out sideways|"
        "the nightly job eats all memory|invoices are rounded twice|the map shows yesterday's weather"
    ),
    "medicine": several("metformin levothyroxine ramipril sertraline warfarin omeprazole"),
    "dish": several("moussaka|mushroom risotto|fish pie|lentil dal|shakshuka|beef stroganoff|pumpkin soup"),
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A kind of fact; `{who}` is a person or a project, `{v}` the value."""

    value: str
    """A key of `VALUES`, or of `NUMBERS`."""
    told: str
    again: str
    """The same with another value, later."""
    asked: str
    reworded: str
    """Asked in other words: of the content words one or two are shared, in part as another form."""
    aside: str
    """A turn without a fact, in the same words."""


OF_PEOPLE = (
    Topic("food", "{who} is allergic to {v}, so we cooked something else on Sunday.",
          "The doctor was wrong about {who}, who is allergic to {v} and to nothing else.",
          "What is {who} allergic to?", "Which food makes {who} ill?",
          "Cooking for {who} is not easy, with being allergic and all."),
    Topic("city", "{who} has found a flat and is moving to {v} at the end of the month.",
          "Change of plans, {who} will now be moving to {v} instead.",
          "Which city is {who} moving to?", "Where will {who} live after the move?",
          "I helped {who} carry boxes, moving is such a pain."),
    Topic("job", "{who} works as a {v} these days and seems happy with it.",
          "Did I tell you? {who} has quit and now works as a {v}.",
          "What does {who} work as?", "What kind of work is {who} doing?",
          "{who} was too tired to talk, after so much work."),
    Topic("instrument", "{who} plays the {v} in the town's orchestra.",
          "{who} has given the old instrument up and plays the {v} now.",
          "Which instrument does {who} play in the orchestra?", "What does {who} play when there is a concert?",
          "We could not go to the orchestra with {who} after all."),
    Topic("car", "{who} drives a {v} that somehow still passes every inspection.",
          "{who} sold the old one and drives a {v} now.",
          "What car does {who} drive?", "Which make is it that {who} drives?",
          "{who} offered to drive me to the airport, very kind."),
    Topic("pet", "{who}'s dog is called {v} and sleeps on the sofa.",
          "The old dog died in spring; {who} has a puppy called {v} now.",
          "What is {who}'s dog called?", "What name did {who} give to the dog?",
          "I looked after the dog while {who} was away."),
    Topic("book", "{who} chose {v} for our reading group this time.",
          "The book was sold out, so {who} chose {v} for the reading group instead.",
          "Which book did {who} choose for the reading group?", "What are we reading, now that {who} chose?",
          "The reading group with {who} was cancelled again."),
    Topic("thing", "I lent my {v} to {who}, it has to be back before summer.",
          "{who} brought it back, so now my {v} is lent there.",
          "What is lent to {who}?", "Which of my things does {who} have until summer?",
          "I never know whether I should lend things to {who}."),
    Topic("present", "{who} gave me a {v} for my birthday, of all things.",
          "{who} exchanged the birthday present, so it is a {v} in the end.",
          "What did {who} give me for my birthday?", "What birthday present came from {who}?",
          "{who} forgot my birthday two years ago, so who knows."),
    Topic("medicine", "{who} takes {v} every morning, on the doctor's advice.",
          "{who}'s doctor stopped the tablets, it is {v} every morning from now on.",
          "Which medicine does {who} take in the morning?", "What did the doctor tell {who} to take?",
          "{who} has to see the doctor in the morning."),
    Topic("dish", "When {who} comes for dinner we always make {v}.",
          "{who} is tired of that dinner, so we make {v} from now on.",
          "What do we make when {who} comes for dinner?", "What does {who} get for dinner at our place?",
          "{who} may come for dinner next week, or not."),
)  # fmt: skip
OF_PROJECTS = (
    Topic("port", "The staging server of {who} listens on port {v}.",
          "Ops moved the staging server of {who}, it is on port {v} now.",
          "Which port does the staging server of {who} listen on?", "Where do I connect to reach staging for {who}?",
          "The staging server of {who} was down for an hour."),
    Topic("money", "The budget for {who} was set to {v} euros.",
          "They cut it: {who} has a budget of {v} euros after the review.",
          "What is the budget for {who} in euros?", "How many euros may {who} cost?",
          "There was a long discussion of the budget, {who} among others."),
    Topic("db", "{who} stores its orders in {v}, mostly for historical reasons.",
          "The migration is done, {who} stores its orders in {v} now.",
          "Where does {who} store its orders?", "Which database holds the orders of {who}?",
          "I reviewed how {who} handles orders, it was a mess."),
    Topic("version", "The last good release of {who} is {v}, anything newer breaks the importer.",
          "They fixed the importer, the last good release of {who} is {v} now.",
          "What is the last good release of {who}?", "Up to which release can {who} be trusted?",
          "The release of {who} slipped by a week."),
    Topic("day", "The steering group wants {who} delivered on {v}.",
          "The date has moved, {who} must be delivered on {v}.",
          "When must {who} be delivered?", "On what day does the steering group expect {who}?",
          "The steering group had no questions on {who} this time."),
)  # fmt: skip
OF_MINE = (
    Topic("place", "I keep the spare key of the boat {v}.", "", "Where is the spare key of the boat?",
          "Where did I hide the boat's extra key?", "I must have the boat painted."),
    Topic("time", "My train to the conference in Lyon leaves at {v}.", "", "When does my train to Lyon leave?",
          "What time is the departure of the Lyon train?", "The conference in Lyon has too many parallel tracks."),
    Topic("code", "The alarm code of the allotment shed is {v}.", "", "What is the alarm code of the shed?",
          "What do I type to switch the shed's alarm off?", "The alarm went off twice last night."),
    Topic("size", "For the climbing shoes I need size {v}, they come small.", "", "What size are my climbing shoes?",
          "Which size should I order when I buy shoes for climbing?", "Climbing was fun, my arms hurt."),
    Topic("company", "The boiler was serviced by {v} this time.", "", "Who serviced the boiler?",
          "Which firm did the boiler's last service?", "The boiler makes a strange noise in the evening."),
    Topic("colour", "The paint in the hallway is {v}, I kept half a tin.", "", "What is the paint in the hallway?",
          "Which colour did we paint the hallway?", "Painting the kitchen took a whole weekend."),
    Topic("number", "My library card has the number {v}.", "", "What is the number of my library card?",
          "Which number do I give at the library?", "The library is closed on Mondays."),
    Topic("code", "Our passcode for the cabin's wifi is {v}, written on the fridge.", "",
          "What is the passcode for the wifi in the cabin?", "How do we get into the cabin's wifi?",
          "The cabin was freezing when we came."),
    Topic("number", "The policy number of the bicycle insurance is {v}.", "",
          "What is the policy number of my bicycle insurance?", "Which number does the insurance have for my bicycle?",
          "Bicycle insurance costs more every year."),
    Topic("day", "The passport runs out on {v}, I just looked.", "", "When does my passport run out?",
          "Until when is my passport good?", "They looked at my passport for ages at the border."),
    Topic("city", "My grandmother was born in {v}, says her certificate.", "", "Where was my grandmother born?",
          "Which town is on grandmother's birth certificate?", "I must call my grandmother."),
    Topic("time", "The choir rehearsal starts at {v} on Wednesdays.", "", "When does the choir rehearsal start?",
          "What time do I have to be at choir?", "The choir sang Fauré, it was beautiful."),
)  # fmt: skip
CJK = (
    ("我把备用钥匙放在{v}了，别忘了。", "备用钥匙放在哪里？", "厨房的抽屉里|门口的花盆下面|书架最上层|车库的工具箱"),
    ("小明对{v}过敏，聚餐的时候要注意。", "小明对什么过敏？", "花生|虾|芒果|牛奶"),
    ("新项目的服务器端口是{v}，已经通知大家了。", "新项目的服务器端口是多少？", "8443|9021|7310|5051"),
    ("我妹妹下个月要搬到{v}去住。", "我妹妹要搬到哪个城市？", "杭州|成都|青岛|昆明"),
    ("うちの猫の名前は{v}です。", "猫の名前は何ですか？", "みかん|コロッケ|たぬき|あずき"),
    ("来週の会議は{v}に変更になりました。", "来週の会議はいつですか？", "水曜日の三時|金曜日の十時|月曜日の朝"),
    ("田中さんの電話番号は{v}です。", "田中さんの電話番号を教えて", "03-5512-8841|03-7719-2206|06-4410-9932"),
    ("여권은 {v}에 넣어 두었어요.", "여권을 어디에 두었어요?", "책상 서랍|파란 가방|금고"),
    ("민수의 생일은 {v}이에요.", "민수의 생일이 언제예요?", "삼월 오일|칠월 십이일|시월 이십일"),
    ("รหัสประตูสำนักงานคือ {v}", "รหัสประตูสำนักงานคืออะไร", "4471|9083|2216"),
)
SMALL_TALK_CJK = (
    "今天天气真好，我们去公园散步吧。", "你能帮我写一封邮件吗？", "这个周末我想看一部电影。",
    "昨天的晚饭很好吃，谢谢你的菜谱。", "今日はとても忙しかったです。", "おすすめの本はありますか？",
    "東京の天気を調べたいです。", "오늘은 정말 피곤해요.", "저녁에 뭘 먹을까요?", "สวัสดีครับ วันนี้อากาศดีมาก",
)  # fmt: skip
REPLIES = (  # what the user is at, what the assistant asks, the whole reply, the question much later
    ("I have to see the dentist about that tooth.", "Which day is the dentist's appointment?", "{day} at {time}.",
     "When is my appointment at the dentist?"),
    ("We want to book a table for the anniversary.", "How many of you will come to the anniversary dinner?",
     "{n}, two of them children.", "How many people come to the anniversary dinner?"),
    ("I need new curtains for the bedroom.", "What are the measurements of the bedroom window?", "{n} by {m} cm.",
     "What are the measurements of the bedroom window?"),
    ("Help me fill in the form for the kindergarten.", "What does the kindergarten want to know first?",
     "The vaccination date, which was {date}.", "Which vaccination date goes into the form for the kindergarten?"),
    ("Let us plan the hike on the ridge.", "Where does the ridge hike begin?", "At the car park in {city}.",
     "Where does the hike on the ridge begin?"),
    ("I am making the guest list for the wedding.", "Who will be the witness at the wedding?", "{who}, of course.",
     "Who is the witness at the wedding?"),
    ("The landlord wants to change the lease.", "By how much does the landlord want to raise the rent?", "{n} euros.",
     "By how much does the landlord want to raise the rent?"),
    ("I am going to the scrapyard for a gearbox.", "For which car do you need the gearbox?", "The {car}.",
     "For which car do I need a gearbox?"),
)  # fmt: skip
ADVICE = (  # what the user wants, what only the answer has, the question
    ("My hinge squeaks, what helps?", "put graphite powder on the hinge, and wipe it after a minute",
     "What did you tell me to put on the squeaking hinge?"),
    ("How do I get red wine out of a tablecloth?", "soak the tablecloth in soda water with salt before washing",
     "What was your advice for red wine on the tablecloth?"),
    ("Any idea for a film with subtitles tonight?", "watch Babette's Feast, a quiet film from Denmark",
     "Which film with subtitles did you recommend?"),
    ("Which plant survives in a dark hall?", "take an aspidistra, no plant is better with little light",
     "Which plant did you suggest for the dark hall?"),
    ("What could I call my sailing blog?", "call the blog Leeway, it is short and easy to spell",
     "What name did you propose for my sailing blog?"),
    ("I need a mnemonic for the planets.", "remember the planets by: my very eager monkey just saw us napping",
     "What was the mnemonic for the planets?"),
    ("How long do I boil an ostrich egg?", "boil an ostrich egg for ninety minutes if you want it hard",
     "How long should an ostrich egg boil, according to you?"),
    ("Which knot should I use for the hammock?", "tie the hammock with a becket hitch, it never slips",
     "Which knot did you say is best for the hammock?"),
)  # fmt: skip
DIARY = ("Went running along the river, {v} kilometres today.", "How far did I run on {date}?")
WORDLESS = (  # no content word is shared: what only meaning finds
    ("Nuts make my throat swell shut.", "Do I have any allergies?"),
    ("My better half teaches maths at the comprehensive.", "What is my wife's profession?"),
    ("We tied the knot in a tiny chapel in Wales.", "Where did our marriage take place?"),
    ("The mutt chewed my slippers to bits.", "What has the dog destroyed?"),
    ("I cannot stand coriander.", "Which herb do I dislike?"),
    ("Our toddler finally slept through.", "How is the baby's night rest?"),
    ("Doc says my blood pressure is through the roof.", "Am I suffering from hypertension?"),
    ("The old banger would not start this morning.", "What trouble is there with the car's engine?"),
)

# -- the rest of the talk ------------------------------------------------------------------------------------------

SUBJECTS = {  # what / doing / how
    name: tuple(row.split() for row in rows)
    for name, rows in {
        "cooking": ("sauce oven dough knife broth marinade skillet crust pantry garlic stock menu",
                    "simmer season knead chop roast reduce whisk bake", "crisp salty tender burnt sweet lean"),
        "code": ("parser queue branch index container endpoint cache schema thread exception build config",
                 "refactor deploy debug merge benchmark log validate rewrite",
                 "flaky slow nested deprecated idempotent verbose"),
        "travel": ("ferry hostel itinerary visa luggage border museum ticket pass harbour tram coast",
                   "book pack cross visit cancel hike rent wander", "crowded remote scenic cheap foggy early"),
        "garden": ("compost hedge tomato pruning bed seedling slug fence greenhouse mulch apple pond",
                   "water prune dig sow weed graft mow harvest", "shady dry rampant frosty early woody"),
        "money": ("pension invoice deposit tax receipt loan account transfer interest rent fee statement",
                  "save pay refund invest cancel compare owe file", "fixed annual late net hidden monthly"),
        "health": ("sleep knee posture pulse stretch appointment vitamin cough headache walk breath diet",
                   "rest bend ache measure skip recover breathe train", "stiff sore tired regular mild deep"),
        "letters": ("letter paragraph tone reference deadline draft heading footnote summary quote chapter title",
                    "shorten rewrite translate cite outline proofread open close",
                    "formal polite dry vague friendly concise"),
        "home": ("shelf window door lamp carpet tap radiator drill ceiling cable cupboard tile",
                 "fix paint measure hang move seal replace clean", "loose damp noisy crooked dusty warm"),
    }.items()
}  # fmt: skip
ASKING = (
    "Can you help me to {verb} the {noun}? It is rather {adjective}.",
    "How would you {verb} a {adjective} {noun} without ruining the {other}?",
    "I tried to {verb} the {noun} yesterday, and now the {other} is {adjective}.",
    "What is the difference between a {noun} and a {other}, and when do I {verb} one?",
    "Please make me a plan for the {noun}: first {verb}, then the {other}.",
    "I talked to {who} about the {noun}, who thinks that the {other} is too {adjective}.",
    "Is it normal that a {noun} gets {adjective} when you {verb} the {other}?",
    "{who} wants to know whether we should {verb} the {noun} this week.",
    "For {project} somebody has to {verb} the {noun}, and the {other} is {adjective} already.",
)
ANSWERING = (
    "Start with the {noun}, since a {adjective} {other} is harder to {verb} afterwards.",
    "If the {other} turns {adjective}, {verb} it once more and let the {noun} be.",
    "Most people {verb} the {noun} too late.",
    "A good {noun} costs little, and a {adjective} one can often be mended.",
    "Make a list of what you need: the {noun}, the {other}, and some patience.",
    "It depends on how {adjective} the {noun} is and how often you {verb} it.",
    "Check the {other} first; nine times out of ten the {noun} is not to blame.",
    "You could {verb} both the {noun} and the {other} on the same day.",
    "Remember to write down when you {verb} the {noun}, so that you can compare.",
    "There is no harm in asking somebody who has a {adjective} {noun}, too.",
)
AROUND = (
    "", "", "", "By the way: ", "Before I forget: ", "One more thing. ", "Oh, and something else. ", "Good morning! ",
    "Not urgent: ", "For the record: ",
)  # fmt: skip
NOTED = ("Noted.", "Thank you for telling me, I will keep it in mind.", "Good to know!", "All right, I remember that.")
UNSURE = "I cannot look that up from here, but I can help you to search your notes."
STOP = re.compile(r"^(what|which|where|when|does|will|must|should|there|their|these|those|would|could)$", re.IGNORECASE)
MONTHS = several("January February March April May June July August September October November December")

NUMBERS: dict[str, Callable[[random.Random], str]] = {
    "port": lambda rng: str(rng.randrange(3000, 9900)),
    "money": lambda rng: f"{rng.randrange(12, 990)},{rng.choice(('000', '250', '500', '800'))}",
    "version": lambda rng: f"v{rng.randrange(1, 9)}.{rng.randrange(30)}.{rng.randrange(12)}",
    "day": lambda rng: f"{rng.randrange(1, 29)} {rng.choice(MONTHS)}",
    "time": lambda rng: f"{rng.randrange(6, 22)}:{rng.randrange(60):02}",
    "code": lambda rng: f"{rng.choice('BDFHKRT')}{rng.randrange(1000, 9999)}",
    "size": lambda rng: f"{rng.randrange(36, 46)}.5",
    "number": lambda rng: f"{rng.randrange(100, 999)}-{rng.randrange(1000, 9999)}",
}

Turn = list[tuple[str, str, str | None]]
"""Role, text, and the name by which the text is evidence."""


@dataclass(slots=True)
class World:
    """One user's sessions in the making."""

    rng: random.Random
    n_sessions: int
    turns: list[list[Turn]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    drawn: dict[str, list[str]] = field(default_factory=dict)
    names: int = 0
    people: list[str] = field(init=False)
    hard: list[str] = field(init=False)
    projects: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.turns = [[] for _ in range(self.n_sessions)]
        self.people = self.rng.sample(PEOPLE, 10)
        self.hard = self.rng.sample(sorted(HARD_NAMES), 4)
        self.projects = self.rng.sample(PROJECTS, 8)

    def value(self, kind: str) -> str:
        """A value that nothing else has as long as there are others."""
        if kind in NUMBERS:
            return NUMBERS[kind](self.rng)
        pool = self.drawn.setdefault(kind, [])
        if not pool:
            pool += self.rng.sample(VALUES[kind], len(VALUES[kind]))
        return pool.pop()

    def say(self, text: str, session: int, *, answer: str | None = None) -> str:
        """A turn with this in it; the name of the user's message."""
        self.names += 1
        name = f"m{self.names}"
        said = self.rng.choice(AROUND) + text
        if self.rng.random() < 0.25:
            said += " " + self.phrase(ASKING, self.rng.choice(sorted(SUBJECTS)))
        reply = answer or self.rng.choice(NOTED) + (f" So: {text}" if self.rng.random() < 0.3 else "")
        if self.rng.random() < 0.4:
            reply += " " + self.essay(self.rng.choice(sorted(SUBJECTS)), self.rng.randrange(2, 8))
        self.turns[session].append([("user", said, name), ("assistant", reply, None)])
        return name

    def ask(self, text: str, evidence: str, kind: str, *, headline: bool = True) -> None:
        self.questions.append(Question(text, (evidence,), kind, headline))

    def early(self) -> int:
        return self.rng.randrange(int(self.n_sessions * 0.6))

    def any(self) -> int:
        return self.rng.randrange(self.n_sessions)

    def phrase(self, frames: tuple[str, ...], subject: str) -> str:
        nouns, verbs, adjectives = SUBJECTS[subject]
        noun, other = self.rng.sample(nouns, 2)
        return self.rng.choice(frames).format(
            noun=noun,
            other=other,
            verb=self.rng.choice(verbs),
            adjective=self.rng.choice(adjectives),
            who=self.rng.choice(self.people + self.hard),
            project=self.rng.choice(self.projects),
        )

    def essay(self, subject: str, n: int) -> str:
        return " ".join(self.phrase(ANSWERING, subject) for _ in range(n))

    def filler(self) -> Turn:
        """A turn about nothing that is asked for later; answers are long, and some messages carry code."""
        if self.rng.random() < 0.04:
            return [
                ("user", self.rng.choice(SMALL_TALK_CJK), None),
                ("assistant", self.rng.choice(SMALL_TALK_CJK), None),
            ]
        subject = self.rng.choice(sorted(SUBJECTS))
        said = " ".join(self.phrase(ASKING, subject) for _ in range(self.rng.choice((1, 1, 2, 3))))
        if self.rng.random() < 0.08:
            nouns = SUBJECTS["code"][0]
            lines = (f"    {a}_{b} = {a}(retries={self.rng.randrange(9)})" for a, b in pairwise(nouns))
            said += "\n```python\ndef main():\n" + "\n".join(lines) + "\n```"
        return [("user", said, None), ("assistant", self.essay(subject, self.rng.randrange(4, 26)), None)]


def cases(n: int = 1, *, seed: int = 1, sessions: int = 40, turns: int = 12) -> list[Case]:
    """Users with so many sessions of at least so many turns; some 120 questions each, put after the last session."""
    return [_case(f"generated/{seed}/{k}", random.Random(f"{seed} {k}"), sessions, turns) for k in range(n)]


def _case(name: str, rng: random.Random, sessions: int, turns: int) -> Case:
    world = World(rng, sessions)
    days = [datetime(2025, 2, 3, 9, tzinfo=UTC) + timedelta(days=7 * k + rng.randrange(5)) for k in range(sessions)]
    for topic in OF_PEOPLE:
        for who in rng.sample(world.people + world.hard, 5):
            _told(world, topic, who)
    for topic in OF_PROJECTS:
        for who in rng.sample(world.projects, 4):
            _told(world, topic, who)
    for topic in OF_MINE:
        _told(world, topic, "")
    for told, asked, several in CJK:
        evidence = world.say(told.format(v=rng.choice(several.split("|"))), world.early(), answer="好的。")
        world.ask(asked, evidence, "CJK")
    _replies(world)
    _advice(world)
    _diary(world, days)
    for told, asked in WORDLESS:
        world.ask(asked, world.say(told, world.early()), "no word in common", headline=False)
    return _finish(name, world, days, turns)


def _told(world: World, topic: Topic, who: str) -> None:
    """A fact: given once, perhaps changed, among turns with the same words and no fact; and one question."""
    rng = world.rng
    project = topic in OF_PROJECTS
    kinds = ["told once", "other words", "typo", "asked before", *(["changed later"] if topic.again else [])]
    kind = "name" if who in HARD_NAMES else rng.choice(kinds + ["number"] * (2 * project))
    session = world.early()
    evidence = world.say(topic.told.format(who=who, v=world.value(topic.value)), session)
    if kind == "changed later":
        later = rng.randrange(session + 5, world.n_sessions) if session + 5 < world.n_sessions else world.n_sessions - 1
        evidence = world.say(topic.again.format(who=who, v=world.value(topic.value)), later)
    for _ in range(rng.randrange(3)):
        world.say(topic.aside.format(who=who), world.any())
    asked = topic.asked.format(who=HARD_NAMES.get(who, who))
    if kind == "asked before":
        world.say(asked, world.any(), answer=UNSURE)
    elif kind == "other words":
        asked = topic.reworded.format(who=who)
    elif kind == "typo":
        asked = misspelt(asked, rng)
    world.ask(asked, evidence, kind)


def _replies(world: World) -> None:
    """What is only understood with the question before it."""
    rng = world.rng
    for said, question, reply, asked in REPLIES:
        world.names += 1
        name = f"m{world.names}"
        n, m = rng.sample(range(11, 240), 2)
        answer = reply.format(
            n=n, m=m, who=rng.choice(world.people), city=rng.choice(VALUES["city"]), car=rng.choice(VALUES["car"]),
            day=rng.choice(("Tuesday", "Thursday", "Friday")), time=NUMBERS["time"](rng), date=NUMBERS["day"](rng),
        )  # fmt: skip
        turn: Turn = [("user", said, None), ("assistant", question, None), ("user", answer, name),
                      ("assistant", rng.choice(NOTED), None)]  # fmt: skip
        world.turns[world.early()].append(turn)
        world.ask(asked, name, "short reply")


def _advice(world: World) -> None:
    """A fact that only a long answer has."""
    for said, advice, asked in ADVICE:
        world.names += 1
        name, subject = f"m{world.names}", world.rng.choice(sorted(SUBJECTS))
        answer = f"{world.essay(subject, 4)} In your place I would {advice}. {world.essay(subject, 8)}"
        world.turns[world.early()].append([("user", said, None), ("assistant", answer, name)])
        world.ask(asked, name, "said by the assistant")


def _diary(world: World, days: list[datetime]) -> None:
    """The same again and again; only the day differs."""
    told, asked = DIARY
    said = {
        session: world.say(told.format(v=world.rng.randrange(3, 30)), session)
        for session in world.rng.sample(range(world.n_sessions), min(15, world.n_sessions))
    }
    for session in world.rng.sample(sorted(said), min(5, len(said))):
        day = days[session]
        world.ask(asked.format(date=f"{day.day} {day:%B}"), said[session], "date")


def _finish(name: str, world: World, days: list[datetime], turns: int) -> Case:
    made = []
    for number, (day, told) in enumerate(zip(days, world.turns, strict=True)):
        told += [world.filler() for _ in range(turns - len(told))]
        world.rng.shuffle(told)
        said = [each for turn in told for each in turn]
        session = []
        for n, (role, text, named) in enumerate(said):
            at = int((day + timedelta(seconds=40 * n)).timestamp() * 1000)
            entry = Entry("user" if role == "user" else "assistant", text, created_ms=at)
            session.append(SourceMessage(named or f"s{number}.{n}", entry))
        made.append(tuple(session))
    return Case(name, tuple(made), tuple(world.questions))


def misspelt(text: str, rng: random.Random) -> str:
    """The text with a slip in one of its words: two letters swapped, one left out, or one typed twice."""
    words: list[Any] = re.split(r"(\w+)", text)
    at = rng.choice([n for n, word in enumerate(words) if len(word) > 3 and word.isalpha() and not STOP.match(word)])
    word, k = words[at], rng.randrange(1, len(words[at]) - 1)
    words[at] = rng.choice(
        (word[:k] + word[k + 1] + word[k] + word[k + 2 :], word[:k] + word[k + 1 :], word[:k] + word[k] + word[k:])
    )
    return "".join(words)
