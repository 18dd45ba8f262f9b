"""Words with a treatment of their own: stop words, other ways to write a word, and words of related meaning.

Tables only, in lower case; a word may be several, separated by blanks. Regular endings are the stemmer's: it knows that
`walks` is `walk`, but not that `went` is `go`.
"""

from __future__ import annotations

_ENGLISH = """
a about above after again against ago ain all also am an and any anyone anything are aren as asking asks at be became
because been before being below between both but by came can cannot come comes coming could couldn d did didn do does
doesn doing don done during each either else ever every for from further get gets getting give given gives go goes
going got had hadn has hasn have haven having he hello her here hers herself hey hi him himself his how however i if
in into is isn it its itself just kind lately let ll m made make makes many may me might mine more most much must my
myself no nor not now of off ok okay on once one ones only or other our ours ourselves out over own please put quite
rather re really recently s same seem shall she should shouldn so some someone something such t take taken takes
taking than thanks that the their theirs them themselves then there these they thing things this those though through
to too took under until up upon us use used uses using ve very want wanted wants was wasn way we were weren what
whatever when where which while who whom whose why will with within without won would wouldn yes yet you your yours
yourself
"""

_FRAME = """
actually archived asked aspect aspects bring bringing brought chat chats conversation conversations describe different
discuss discussed discussing earlier exactly explain know list mention mentioned mentioning mentions previous
previously recall remember remembered remind reminded said say says speak spoke talk talked talking tell throughout
told various
"""
"""Wording of questions about earlier conversations, without content of its own."""

STOP: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": _ENGLISH + _FRAME,
        "de": """aber als am an auch auf aus bei bin bis bist da das dass dein deine dem den der des die dies diese du
            ein eine einem einen einer er es für gibt habe haben hast hat hatte ich ihr im in ist ja kann kein keine
            man mein meine meinem meinen meiner mich mir mit nach nicht noch nur oder sein seine sich sie sind so über
            um und uns unser unsere vom von vor war waren warum was wann welche welchen welcher welches wenn wer werden
            wie wieviel wir wird wo wohin wurde zu zum zur""",
        "fr": """à ai as au aux avec avez avons c ce ces cet cette comment d dans de des dit du elle en es est et été
            être eu il ils j je l la le les leur leurs lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par
            pas plus pour pourquoi qu quand que quel quelle quelles quels qui quoi s sa se ses son sont sur t ta te tes
            toi ton tu un une va vos votre vous y""",
        "es": """a al algo como cómo con cual cuál cuando cuándo cuanto cuánto cuántos de del desde donde dónde el ella
            ellos en entre era es esa ese eso esta está este esto fue ha he hay la las le les lo los más me mi mis muy
            nada ni no nos nosotros o para pero por porque qué que quién quien se ser si sí sin sobre son su sus también
            te tengo tiene tu tus un una uno unos y ya yo""",
        "it": """a ai al alla che chi ci come con cosa da dal dei del della delle di dove e è ed era gli ha hai ho i il
            in io la le lei lo loro lui ma mi mia mie miei mio ne nel nella noi non o per perché più quale quali quando
            quanto quella quello questa questo se sei si sono su sua suo sul sulla ti tra tu tua tuo un una uno voi""",
        "pt": """a ao as até com como da das de dela dele depois do dos e é ela ele em era essa esse esta está este eu
            foi há isso já lhe mais mas me meu meus minha minhas na não nas nem no nos nós o onde os ou para pela pelo
            por porque qual quais quando quanto que quem se sem ser seu sua são também te tem tenho teu tua um uma você
            vocês""",
        "nl": """aan al als bij dan dat de der deze die dit doen door een en er gaan geen had heb hebben heeft het hij
            hoe hoeveel ik in is ja je jij kan maar me meer met mij mijn naar niet nog nu of om ons onze ook op over te
            tot uit van voor waar waarom was wat wanneer we welke werd wie wij ze zich zij zijn zo""",
    }.items()
}
"""By language. Those of another language than English count only in a text with several of them: `die` and `pour`
are content words in English."""

_IRREGULAR = """
be was were been|become became|begin began begun|bite bit bitten|blow blew blown|break broke broken|bring brought
build built|buy bought|catch caught|choose chose chosen|deal dealt|dig dug|draw drew drawn|dream dreamt dreamed
drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought|find found
fly flew flown|forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten|give gave given
go went gone going|grow grew grown|hang hung|hear heard|hide hid hidden|hold held|keep kept|know knew known|lay laid
lead led|learn learnt learned|leave left|lend lent|lie lay lain|lose lost|make made|mean meant|meet met|pay paid
ride rode ridden|ring rang rung|rise rose risen|run ran|say said|see saw seen|seek sought|sell sold|send sent|sew sewn
shake shook shaken|shoot shot|show showed shown|sing sang sung|sit sat|sleep slept|speak spoke spoken|spend spent
spill spilt|stand stood|steal stole stolen|stick stuck|strike struck|swim swam swum|take took taken|teach taught
tell told|think thought|throw threw thrown|understand understood|wake woke woken|wear wore worn|win won
write wrote written|child children|man men|woman women|person people|foot feet|tooth teeth|mouse mice|wife wives
knife knives|life lives|half halves|leaf leaves|shelf shelves|good better best|bad worse worst
"""

_SAME = """
0 zero|1 one|2 two|3 three|4 four|5 five|6 six|7 seven|8 eight|9 nine|10 ten|11 eleven|12 twelve|20 twenty|30 thirty
40 forty|50 fifty|60 sixty|70 seventy|80 eighty|90 ninety|100 hundred|1000 thousand|first 1st|second 2nd|third 3rd
fourth 4th|fifth 5th|january jan|february feb|march mar|april apr|august aug|september sep sept|october oct
november nov|december dec|monday mon|tuesday tue tues|wednesday wed|thursday thu thurs|friday fri|saturday sat
sunday sun|favourite favorite prefer like_best like_most best_like|colour color|grey gray|neighbour neighbor
centre center|theatre theater|programme program|honour honor|flavour flavor|harbour harbor|litre liter|metre meter
"""
"""Ways to write the same thing; `_` is a blank."""

_NEAR = """
kid child children son daughter|mom mother mum mama|dad father papa|parent mother father mom dad|grandma grandmother
grandpa grandfather|sibling brother sister|spouse wife husband partner|wife spouse partner|husband spouse partner
partner boyfriend girlfriend spouse wife husband|boyfriend partner|girlfriend partner|pet dog cat puppy kitten
dog puppy|cat kitten|job work position career|occupation job work|profession job career|boss manager
colleague coworker|company employer|movie film|film movie|photo picture photograph pic|picture photo painting
bike bicycle cycling|car vehicle|doctor physician|illness sick disease|sick ill|hospital clinic|house home|home house
apartment flat|flat apartment|city town|town city|country nation|vacation holiday trip travel|holiday vacation trip
trip travel vacation|journey trip|travel trip|buy purchase|purchase buy bought|start begin began|begin start
finish complete end|end finish|build create|create build|big large huge|large big|small little|happy glad
sad unhappy upset|afraid scared fear|scared afraid|angry mad|like love enjoy|love like enjoy|enjoy love like
favorite love|favourite love|hate dislike|hobby interest enjoy|birthday born birth|born birthday
marry married wedding|marriage married wedding|wedding married|divorce separated|degree study graduate
study studying degree|school college|college university|university college|exam test|test exam|book novel reading
novel book|author writer|music song|song music|band concert|concert gig show|game match|sport game
exercise workout gym|workout exercise gym|gym workout|meal dinner lunch|food eat meal|dinner meal|recipe cook
cook recipe|restaurant dinner ate|money cost budget|price cost|cost price|salary pay income|income salary|rent lease
deadline due|due deadline|bug error issue|error bug issue|issue problem bug|problem issue|database db|db database
repo repository|config configuration|configuration config|app application|application app|function method
library package|server host|version release|password credential|phone mobile number|email mail address|address street
meeting appointment call|appointment meeting|plan planning schedule|schedule plan|goal aim target|target goal
reason because why|allergy allergic|allergic allergy|injury hurt injured|hurt injury injured|volunteer charity
charity volunteer|gift present|present gift|move moved relocate|relocate moved|live lives moved home house
paint painting art|art painting drawing|camp camping|hike hiking trail|run marathon race|race marathon
beach ocean sea|ocean sea beach|lake river
mountain hike hiking|plant garden|garden gardening plants|church faith religion|religion church faith
therapy counseling therapist|counselor therapy|nickname call called|name named called|age old years|old age years
"""
"""A word of a question, and the words that an answer may have instead."""


def _groups(table: str) -> list[list[str]]:
    groups = [group.split() for group in table.replace("\n", "|").split("|") if group]
    return [[word.replace("_", " ") for word in group] for group in groups]


def _same(*tables: str) -> dict[str, tuple[str, ...]]:
    """For each word of a group all the others."""
    made: dict[str, dict[str, None]] = {}
    for group in (group for table in tables for group in _groups(table)):
        for word in group:
            made.setdefault(word, {}).update(dict.fromkeys(other for other in group if other != word))
    return {word: tuple(others) for word, others in made.items()}


SAME = _same(_IRREGULAR, _SAME)
NEAR = {word: tuple(others) for word, *others in _groups(_NEAR)}

_WHEN = """
today yesterday tomorrow tonight morning afternoon evening night week weekend month year day days weeks months years ago
last next recently since date deadline monday tuesday wednesday thursday friday saturday sunday january february march
april may june july august september october november december am pm
"""
_NUMBERS = """
one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty seventy eighty ninety
hundred thousand million half couple once twice dozen
"""
WHEN = frozenset(_WHEN.split())
NUMBERS = frozenset(_NUMBERS.split())
