"""LaTeX formulas as Unicode text: `\\bar x = \\bar y\\,(1 - y^2)` becomes `x̄ = ȳ (1 − y²)`."""

from __future__ import annotations

import re
from unicodedata import normalize

BAR = "\u0304"  # combines with the letter before it
ACCENTS = {"bar": BAR, "overline": BAR, "hat": "\u0302", "tilde": "\u0303", "dot": "\u0307"}
SUPERSCRIPTS = dict(zip("0123456789+-−=()niTjkxytabcdemos", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿⁱᵀʲᵏˣʸᵗᵃᵇᶜᵈᵉᵐᵒˢ"))
SUBSCRIPTS = dict(zip("0123456789+-−=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ"))
GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi varphi "
        "chi psi omega Gamma Delta Theta Lambda Pi Sigma Phi Psi Omega".split(),
        "αβγδεεζηθκλμνξπρστφφχψωΓΔΘΛΠΣΦΨΩ",
    )
)
SIGNS = {
    "odot": "⊙", "otimes": "⊗", "oplus": "⊕", "times": "×", "cdot": "·", "star": "⋆", "ast": "∗", "circ": "∘",
    "div": "÷", "pm": "±", "sum": "∑", "prod": "∏", "int": "∫", "partial": "∂", "nabla": "∇", "infty": "∞", "le": "≤",
    "leq": "≤",
    "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈", "to": "→", "rightarrow": "→", "mapsto": "↦", "in": "∈",
    "gets": "←", "leftarrow": "←", "top": "ᵀ", "intercal": "ᵀ", "prime": "′", "dots": "…", "ldots": "…", "cdots": "…",
    "ell": "ℓ", "mid": "|", "vert": "|", "lvert": "|", "rvert": "|", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈",
    "rceil": "⌉", "colon": ":", "lnot": "¬", "neg": "¬", "land": "∧", "lor": "∨",
}  # fmt: skip
SPACES = {",": " ", ";": " ", ":": " ", " ": " ", "!": "", "quad": "  ", "qquad": "  ", "\\": ", "}
NOTHING = frozenset("left right big Big bigl bigr Bigl Bigr displaystyle textstyle limits mathrel mathbin".split())
WORDS = frozenset("text operatorname mathrm mathbf mathit mathsf mathcal textbf textit boldsymbol".split())
DOUBLE = {"1": "𝟙", "R": "ℝ", "E": "𝔼", "N": "ℕ", "Z": "ℤ"}
SPACED = "=⊙⊗⊕×·⋆∗*÷±≤≥≠≈→←↦∈+<>"  # signs with a space on both sides
SMALL, HIGH = ("".join(table.values()) for table in (SUBSCRIPTS, SUPERSCRIPTS))
OPEN, CLOSE, END = "\x01\x02\x03"  # intermediate marks: around words, and after fractions
TOKEN = re.compile(r"\\[a-zA-Z]+\*?[ \t\n]*|\\.|\s+|.", re.DOTALL)


def latex_to_text(latex: str) -> str:
    """Convert a formula to Unicode text; an unknown macro becomes its name.

    >>> latex_to_text(r"\\bar x = \\frac{\\bar y}{2\\sqrt{x}}")
    'x̄ = ȳ/(2√x)'
    """
    return normalize("NFC", _text(latex))


def equations(latex: str) -> list[str]:
    """Convert a formula to Unicode text, one text per gradient equation.

    >>> equations(r"\\bar a = \\bar y\\,b, \\bar b = \\bar y\\,a")
    ['ā = ȳ b', 'b̄ = ȳ a']
    """
    parts = re.split(rf"[,;]\s+(?=\S*{BAR}\S* \+?= )", _text(latex)) if latex.strip() else []
    return [normalize("NFC", part) for part in parts]


def _text(latex: str) -> str:
    """Convert a formula to decomposed Unicode: combining bars separate from letters."""
    return _tidy(_LatexReader(latex).read_all())


class _LatexReader:
    """A recursive-descent parser of formulas."""

    def __init__(self, latex: str) -> None:
        self.tokens = TOKEN.findall(latex)
        self.position = 0

    def read_all(self) -> str:
        parts = []
        while self.position < len(self.tokens):
            parts.append(self._piece())
        return "".join(parts)

    def _piece(self) -> str:
        """Convert the next token, with its arguments."""
        token = self.tokens[self.position]
        self.position += 1
        if token[0] == "\\":
            return self._macro(token[1:].strip() or " ")
        if token == "{":
            return self._group()
        if token in "^_":
            return _script(token, self._argument())
        if token in "}&$":
            return ""
        return {"-": "−", "'": "′", "~": " "}.get(token, " " if token.isspace() else token)

    def _group(self) -> str:
        parts = []
        while self.position < len(self.tokens) and self.tokens[self.position] != "}":
            parts.append(self._piece())
        self.position += 1
        return "".join(parts)

    def _argument(self) -> str:
        while self.position < len(self.tokens) and self.tokens[self.position].isspace():
            self.position += 1
        return self._piece() if self.position < len(self.tokens) else ""

    def _verbatim(self) -> str:
        """Read an argument that is text, not mathematics: spaces are kept."""
        if self.position >= len(self.tokens) or self.tokens[self.position] != "{":
            return self._argument()
        end = self.tokens.index("}", self.position) if "}" in self.tokens[self.position :] else len(self.tokens)
        words = "".join(token.removeprefix("\\") for token in self.tokens[self.position + 1 : end])
        self.position = end + 1
        return words

    def _macro(self, name: str) -> str:
        if name in ACCENTS:
            return _accent(name, self._argument().strip())
        if name in ("frac", "tfrac", "dfrac"):
            return f"{_parenthesize(self._argument())}/{_parenthesize(self._argument())}{END}"
        if name == "sqrt":
            return f"√{_parenthesize(self._argument())}"
        if name in WORDS:
            return _word(self._verbatim())
        if name in ("mathbb", "mathbf1"):
            letter = self._argument()
            return DOUBLE.get(letter, letter)
        if name in NOTHING:
            if self.tokens[self.position : self.position + 1] == ["."]:
                self.position += 1
            return ""
        for table in (SIGNS, GREEK, SPACES):
            if name in table:
                return table[name]
        return name if not name.isalpha() else _word(name)


def _accent(name: str, text: str) -> str:
    """Put an accent on letters; a line over a longer term means its average."""
    if len(text) > 3 and name == "overline":
        return f"{_word('mean')}({text})"
    return "".join(letter + ACCENTS[name] for letter in text)


def _word(name: str) -> str:
    """Mark a word such as `log`; `_tidy` puts spaces where its neighbours would touch it."""
    return f"{OPEN}{name}{CLOSE}"


def _parenthesize(text: str) -> str:
    """Put parentheses around a term that is not a single letter, number or word."""
    text = text.strip()
    letters = re.sub(rf"[{BAR}{''.join(SUPERSCRIPTS.values())}{''.join(SUBSCRIPTS.values())}]", "", text)
    is_atomic = len(letters) <= 1 or letters.isdigit() or re.fullmatch(rf"√?(\w|\([^()]*\))|{OPEN}\w+{CLOSE}", letters)
    return text if is_atomic else f"({text})"


def _script(sign: str, text: str) -> str:
    """Convert to superscripts or subscripts, if Unicode has all the characters."""
    text = _tidy(text)
    tight = text.replace(" ", "")
    table = SUPERSCRIPTS if sign == "^" else SUBSCRIPTS
    if text == "ᵀ" or text == "′":
        return text
    if tight and all(letter in table for letter in tight):
        return "".join(table[letter] for letter in tight)
    return sign + (text if len(text) <= 1 or text.isalpha() else f"({text})")


def _tidy(text: str) -> str:
    """Normalize the spaces of a formula."""
    text = re.sub(rf"\s*(\+=|[{re.escape(SPACED)}])\s*", r" \1 ", text)
    text = re.sub(r"\s*−\s*", _minus, text)
    text = re.sub(
        rf"(?<=[\w){BAR}]){OPEN}|{CLOSE}(?=[^\W{HIGH}{SMALL}]|[√∑∂{OPEN}])|{END}(?=[\w√∑∂({OPEN}])", " ", text
    )
    text = re.sub(f"[{OPEN}{CLOSE}{END}]", "", text)
    text = re.sub(rf"(∑[{SMALL}]*|ᵀ)(?=[^\W\d_ᵀ{SMALL}])", r"\1 ", text)
    text = re.sub(r"\s+/\s*|\s*/\s+", " / ", text)
    text = re.sub(r"([(\[{⌊⌈])\s+|\s+([)\]}⌋⌉,;])", lambda match: match[1] or match[2], text)
    return re.sub(r"\s+", " ", text).strip(" ,;")


def _minus(match: re.Match[str]) -> str:
    """Put spaces around a binary minus, none around a sign."""
    before = match.string[: match.start()].rstrip()
    if not before:
        return "−"
    if before[-1] in "([{/":
        return "−"
    return " −" if before[-1] in SPACED + ",;" else " − "
