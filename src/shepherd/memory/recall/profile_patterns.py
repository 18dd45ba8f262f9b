"""The tables of `profile.py`: how standing wishes are worded, and what only looks like one.

A pattern sees one sentence, in which quotations and code are blotted out, and is matched at the start of a clause. Case
is ignored. English, and the simplest forms of German, French and Spanish.
"""

from __future__ import annotations

import re

from shepherd.memory.records import FactKind

# An English imperative has no form of its own: only verbs that users address to a model count as one.
_DO = (
    "(?:answer|reply|respond|use|write|speak|talk|call|address|give|include|add|keep|make|be|provide|show|explain|"
    "format|start|begin|end|finish|put|sign|treat|assume|act|avoid|stop|do|don't|do not|never|always|mention|cite|list|"
    "tell|ask|limit|translate|convert|refer|remind|check|summari[sz]e|say|prefix|return|output|stick|focus|leave|skip|"
    "ignore|only|quote|highlight|spell|double-check|consider|describe|suggest|recommend)"
)
_DO_DE = (
    "(?:antworte|schreibe?|sprich|rede|benutze?|verwende|nimm|nenne?|gib|zeige?|erkläre?|mache?|sage?|sei|vermeide|"
    "halte?|fasse|füge|duze|sieze|übersetze?|formuliere|erwähne)"
)
_DO_FR = (
    "(?:réponds|répondez|écris|écrivez|parle|parlez|utilise|utilisez|emploie|donne|donnez|explique|expliquez|sois|"
    "soyez|fais|faites|évite|évitez|ajoute|ajoutez|mets|mettez|tutoie|tutoyez|vouvoie|appelle|appelez|dis|dites)"
)
_DO_ES = (
    "(?:responde|contesta|escribe|habla|háblame|usa|utiliza|da|dame|explica|explícame|sé|haz|evita|incluye|añade|pon|"
    "llámame|dime|traduce|muestra|respóndeme)"
)
_DONT_ES = "(?:uses|utilices|respondas|contestes|escribas|hables|digas|des|hagas|incluyas|añadas|pongas|llames)"
_WHEN = (
    r"(?:(?:when|if|whenever|every time|each time|any ?time|before|after) (?:i|you|we)\b[^,:]{1,120}, ?)?"
    r"(?:(?:please|kindly|just|you (?:should|must|have to|need to)|i(?:'d| would)? (?:want|need|like) you to|"
    r"make sure (?:that you|you|to)|be sure to|try to) )*"
)
"""May stand before any English imperative."""
_FROM_NOW = r"(?:from (?:now|here|today|this point) on(?:wards?)?|going forward|henceforth|in (?:the )?future)"
_STANDING = (
    rf"\b(?:{_FROM_NOW}|at all times|always|every time|each time|whenever|any ?more|ever again|"
    r"in (?:all|every|each|any)(?: of)?(?: your| my)? (?:future )?(?:answers?|repl(?:y|ies)|responses?|messages?))\b"
)
_PAST = (  # "never heard of it", "always a pleasure"
    r"(?!(?!embed|feed|proceed|need)\w+ed\b|(?:mind|again|ever|knew|thought|heard|seen|been|had|has|was|were|did|got|"
    r"went|came|saw|felt|found|took|said|told|a|an|the|on|in|at|happy|glad|good|nice|fun|wanting|know|knows)\b)"
)
_CHOSEN = (  # a choice of the moment: "I prefer the second one"
    r"(?! ?(?:the )?(?:first|second|third|last|latter|former|other|next|one|option|this|that|these|those|neither|both|"
    r"not to|them|your|version|draft|it(?! when| if))\b)"
)
_TALE = "time|day|night|movie|film|song|game|one|guy|scene|episode|thing|when|place|feeling"
_PLEASE_FR = r"(?:s'il (?:te|vous) pla[iî]t|stp|svp)"
_PLEASE_ES = "(?:por favor,? )?"

_ASKING_TO_CALL = (
    r"(?:you (?:can|may) |please |just )*(?:call me|address me as|refer to me as)",
    r"(?:bitte )?(?:nenne? mich|du kannst mich)",
    r"appel(?:le|ez)[- ]moi",
    rf"{_PLEASE_ES}llámame",
)
_NAMING = (
    r"(?:my name is|my name's|i am called|i'm called)",
    r"(?:i go by|people call me|everyone calls me)(?-i:(?= [A-ZÀ-Þ]))",
    r"(?:ich hei(?:ß|ss)e|mein name ist)",
    r"(?:je m'appelle|mon (?:pré)?nom est)",
    r"(?:me llamo|mi nombre es)",
)
_INSTRUCTIONS = (
    rf"{_WHEN}(?:always|never(?:,? ever)?),? {_PAST}\w",
    rf"{_WHEN}{_FROM_NOW},? {_WHEN}(?:you (?:will|are)\b|{_DO}\b)",
    rf"in (?:all|every|each)(?: of)?(?: your)? \w+, ?{_WHEN}{_DO}\b",
    rf"{_WHEN}{_DO}\b[^,;]*?{_STANDING}",
    rf"(?:whenever|every time|each time|any ?time) (?:i|you)\b[^,]{{1,120}}, ?{_WHEN}{_DO}\b",
    r"please (?:don't|do not|avoid|refrain from|stop) \w",
    r"stop (?:using|saying|adding|calling|apologi[sz]ing|repeating|asking|including|giving)\b",
    r"(?:please )?(?:remember|keep in mind|bear in mind|don't forget|do not forget)"
    rf"(?: that |: ?|, | (?=(?:i|i'm|i've|my|we|our)\b))(?!(?:{_TALE})\b)\w",
    # German
    rf"(?:bitte )?{_DO_DE}\b[^,;]*?\b(?:immer|nie|niemals|stets|grundsätzlich|ab jetzt|ab sofort|künftig|in zukunft|"
    r"von (?:nun|jetzt) an)\b",
    r"(?:ab jetzt|ab sofort|von (?:nun|jetzt) an|künftig|in zukunft),? (?:bitte |sollst du |möchte ich, dass du |"
    rf"{_DO_DE}\b)",
    r"(?:bitte|du sollst) (?:mir )?(?:immer|nie|niemals|stets|nicht|keine?[nmrs]?)\b",
    r"(?:bitte )?(?:merke? dir|denke? (?:bitte )?daran|vergiss (?:bitte )?nicht)(?:, dass\b|:)",
    # French
    rf"{_DO_FR}\b[^,;]*?\b(?:toujours|jamais|désormais|dorénavant|à partir de maintenant)\b",
    rf"(?:désormais|dorénavant|à partir de maintenant|à l'avenir),? (?:{_DO_FR}\b|tu dois\b|vous devez\b|"
    r"je (?:veux|voudrais) que (?:tu|vous)\b|n(?:e |'))",
    r"(?:ne |n')(?:\w+[ '-]){1,3}jamais\b",
    rf"{_PLEASE_FR},? n(?:e |').*\bpas\b",
    r"(?:souviens-toi|souvenez-vous|rappelle-toi|retiens|n'oublie(?:z)? pas) qu(?:e |')",
    # Spanish
    rf"{_PLEASE_ES}siempre {_DO_ES}\b",
    rf"{_PLEASE_ES}(?:nunca|jamás) (?:me )?{_DONT_ES}\b",
    rf"{_PLEASE_ES}{_DO_ES}\b[^,;]*?\b(?:siempre|de ahora en adelante|a partir de ahora)\b",
    rf"(?:de|a partir de) (?:ahora|aquí)(?: en adelante)?,? {_PLEASE_ES}"
    rf"(?:{_DO_ES}\b|no (?:me )?{_DONT_ES}\b|quiero que\b)",
    rf"por favor,? no (?:me )?{_DONT_ES}\b",
    r"(?:recuerda|no olvides|ten en cuenta|acuérdate de) que\b",
)
_PREFERENCES = (
    r"i (?:(?:really|much|strongly|generally|usually|always|do|definitely|also|personally|still) )*"
    rf"prefer\b{_CHOSEN}",
    r"i(?:'d| would) (?:rather|prefer(?: it| that)?(?: if)?) you\b",
    r"i (?:really )?(?:like|love|hate|dislike|(?:don't|do not) like|can't stand) it (?:when|if) you\b",
    r"i (?:like|want|need) (?:my|your|all|the) (?:answers|replies|responses|explanations|examples)\b",
    r"my (?:preference|(?:preferred|(?:least )?favou?rite) (?!(?:part|one|bit|line|example|answer|of)\b)"
    r"[\w -]{2,40}?) (?:is|are)\b",
    r"(?:ich bevorzuge\b(?! (?:das|den|die) (?:erste|zweite|letzte))|ich ziehe\b.*\bvor\b|"
    r"ich mag es (?:nicht)?,? ?wenn du\b|mir (?:ist|sind)\b.*\blieber\b|mein\w? lieblings\w+ (?:ist|sind)\b)",
    r"(?:je préfère\b(?! (?:l[ea] (?:premi|second|deuxi|derni)|celui|celle|ça|cela))|"
    r"m(?:on|a) [\w ]{2,40}? préférée? est\b)",
    r"(?:prefiero\b(?! (?:el|la) (?:primer|segund|últim|otr)| es[teoa]| no\b)|"
    r"mi [\w ]{2,40}? (?:favorit|preferid)[oa] es\b)",
)

_TABLES: tuple[tuple[FactKind, bool, tuple[str, ...]], ...] = (
    ("instruction", True, _ASKING_TO_CALL),
    ("preference", True, _NAMING),
    ("instruction", False, _INSTRUCTIONS),
    ("preference", False, _PREFERENCES),
)
RULES = tuple((kind, is_name, re.compile(one, re.IGNORECASE)) for kind, is_name, table in _TABLES for one in table)
"""Ways to begin a standing wish: its kind, and whether a name follows. Only the name is kept; else all."""

PASSING = re.compile(
    r"(?i)\b(?:this time|just (?:this )?once|for now|right now|for the moment|at the moment|(?<!from )today|tonight|"
    r"yet|(?:for|in|to|from) this (?!chat|conversation|point)\w+|(?:do|say|send|delete|touch|run) (?:that|this|it)\b|"
    r"(?:don't|do not) (?:worry|hesitate|judge|laugh|be (?:mad|angry|sad|offended)|get me wrong|tell anyone|hate me|"
    r"leave|go|stop|cry|ask me|mind)|diesmal|heute|jetzt nicht|nicht jetzt|dieses mal|cette fois|aujourd'hui|esta vez|"
    r"hoy)\b"
)
"""In a sentence about the moment."""
REPORTED = re.compile(
    r"(?i)\b(?:said|says?|saying|told|tells|wrote|writes|heard|reads?|quot\w+|think|thinks|thought|believes?|wonder\w*|"
    r"claim\w*|called|titled|motto|slogan|sagte?|meinte?|dit|disait|dice|dijo|translate|rephrase|rewrite|proofread|"
    r"übersetze|traduis|traduce)\b"
)
"""Before a wish of another person, or a text to be edited."""
ANNOUNCED = re.compile(
    r"(?i)\b(?:rules?|instructions?|requests?|preferences?|wish|note|reminder|thing|important|please|fyi|ps|bitte|"
    r"wichtig|regel)\W*$"
)
"""Before a colon that introduces a wish of the user."""
OPENERS = re.compile(
    r"(?i)\s*(?:(?:[-*•>]|\d+[.)])\s+|(?:hi|hello|hey|ok|okay|well|so|and|also|but|oh|btw|by the way|yes|no|right|"
    r"alright|thanks|thank you|great|one more thing|another thing|fyi|p\.?s\.?|then|first|shepherd|assistant|"
    r"hallo|also gut|übrigens|und|bonjour|salut|et|hola|y|oye)\b[\s,:!.–—-]+)*"
)
"""Before a wish, and not part of it."""

_NO_NAME = """
a about after again an and as at back before but by crazy during early for from if in is it later mad maybe mud never
not now old on once or out over paranoid pedantic silly so sometime sometimes soon spelled stupid than that the then
there this to today tomorrow tonight up via weird what whatever when whenever while with you your old-fashioned already
also always just only probably monday tuesday wednesday thursday friday saturday sunday auf morgen wenn an zurück nicht
quand demain plus tard pas cuando mañana luego más no lo
"""
_PARTICLES = "von van de da del della der den di du la le bin ibn al el ben y e"
NO_NAME = frozenset(_NO_NAME.split())
"""Words that cannot begin a name: "call me when you are there"."""
PARTICLES = frozenset(_PARTICLES.split())
"""Small words within names."""
