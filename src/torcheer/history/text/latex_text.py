"""LaTeX formulas as one line of readable text: `\\bar x = \\bar y\\,(1 - y^2)` becomes `x̄ = ȳ (1 − y²)`."""

from __future__ import annotations

import re
from unicodedata import normalize

BAR = "\u0304"  # stands above the letter before it
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
SPACED = "=⊙⊗⊕×·⋆∗*÷±≤≥≠≈→←↦∈+<>"  # signs with room on both sides
SMALL, HIGH = ("".join(table.values()) for table in (SUBSCRIPTS, SUPERSCRIPTS))
OPEN, CLOSE, END = "\x01\x02\x03"  # while it is put together: around words, and after fractions
TOKEN = re.compile(r"\\[a-zA-Z]+\*?[ \t\n]*|\\.|\s+|.", re.DOTALL)


def plain(latex: str) -> str:
    """A formula as Unicode text; of a macro that is not known, its name.

    >>> plain(r"\\bar x = \\frac{\\bar y}{2\\sqrt{x}}")
    'x̄ = ȳ/(2√x)'
    """
    return normalize("NFC", _text(latex))


def equations(latex: str) -> list[str]:
    """The same, but one text for each gradient that it gives.

    >>> equations(r"\\bar a = \\bar y\\,b, \\bar b = \\bar y\\,a")
    ['ā = ȳ b', 'b̄ = ȳ a']
    """
    found = re.split(rf"[,;]\s+(?=\S*{BAR}\S* \+?= )", _text(latex)) if latex.strip() else []
    return [normalize("NFC", one) for one in found]


def _text(latex: str) -> str:
    """Letters and their bars still apart."""
    return _tidy(_Reader(latex).all())


class _Reader:
    """Reads a formula piece by piece."""

    def __init__(self, latex: str) -> None:
        self.tokens = TOKEN.findall(latex)
        self.at = 0

    def all(self) -> str:
        parts = []
        while self.at < len(self.tokens):
            parts.append(self._piece())
        return "".join(parts)

    def _piece(self) -> str:
        """The next piece in words of Unicode."""
        token = self.tokens[self.at]
        self.at += 1
        if token[0] == "\\":
            return self._macro(token[1:].strip() or " ")
        if token == "{":
            return self._group()
        if token in "^_":
            return _shifted(token, self._argument())
        if token in "}&$":
            return ""
        return {"-": "−", "'": "′", "~": " "}.get(token, " " if token.isspace() else token)

    def _group(self) -> str:
        parts = []
        while self.at < len(self.tokens) and self.tokens[self.at] != "}":
            parts.append(self._piece())
        self.at += 1
        return "".join(parts)

    def _argument(self) -> str:
        while self.at < len(self.tokens) and self.tokens[self.at].isspace():
            self.at += 1
        return self._piece() if self.at < len(self.tokens) else ""

    def _verbatim(self) -> str:
        """An argument that is text, not mathematics: its spaces stay."""
        if self.at >= len(self.tokens) or self.tokens[self.at] != "{":
            return self._argument()
        end = self.tokens.index("}", self.at) if "}" in self.tokens[self.at :] else len(self.tokens)
        words = "".join(token.removeprefix("\\") for token in self.tokens[self.at + 1 : end])
        self.at = end + 1
        return words

    def _macro(self, name: str) -> str:
        if name in ACCENTS:
            return _accented(name, self._argument().strip())
        if name in ("frac", "tfrac", "dfrac"):
            return f"{_held(self._argument())}/{_held(self._argument())}{END}"
        if name == "sqrt":
            return f"√{_held(self._argument())}"
        if name in WORDS:
            return _word(self._verbatim())
        if name in ("mathbb", "mathbf1"):
            letter = self._argument()
            return DOUBLE.get(letter, letter)
        if name in NOTHING:
            if self.tokens[self.at : self.at + 1] == ["."]:
                self.at += 1
            return ""
        for table in (SIGNS, GREEK, SPACES):
            if name in table:
                return table[name]
        return name if not name.isalpha() else _word(name)


def _accented(name: str, text: str) -> str:
    """The accent on a letter; over something longer a line means its average."""
    if len(text) > 3 and name == "overline":
        return f"{_word('mean')}({text})"
    return "".join(letter + ACCENTS[name] for letter in text)


def _word(name: str) -> str:
    """A word such as `log`, between marks that `_tidy` turns into spaces where its neighbours would touch it."""
    return f"{OPEN}{name}{CLOSE}"


def _held(text: str) -> str:
    """Parentheses around what would fall apart."""
    text = text.strip()
    letters = re.sub(rf"[{BAR}{''.join(SUPERSCRIPTS.values())}{''.join(SUBSCRIPTS.values())}]", "", text)
    whole = len(letters) <= 1 or letters.isdigit() or re.fullmatch(rf"√?(\w|\([^()]*\))|{OPEN}\w+{CLOSE}", letters)
    return text if whole else f"({text})"


def _shifted(sign: str, text: str) -> str:
    """Small letters above or below the line where Unicode has them all."""
    text = _tidy(text)
    tight = text.replace(" ", "")
    table = SUPERSCRIPTS if sign == "^" else SUBSCRIPTS
    if text == "ᵀ" or text == "′":
        return text
    if tight and all(letter in table for letter in tight):
        return "".join(table[letter] for letter in tight)
    return sign + (text if len(text) <= 1 or text.isalpha() else f"({text})")


def _tidy(text: str) -> str:
    """One space where one belongs."""
    text = re.sub(rf"\s*(\+=|[{re.escape(SPACED)}])\s*", r" \1 ", text)
    text = re.sub(r"\s*−\s*", _minus, text)
    text = re.sub(
        rf"(?<=[\w){BAR}]){OPEN}|{CLOSE}(?=[^\W{HIGH}{SMALL}]|[√∑∂{OPEN}])|{END}(?=[\w√∑∂({OPEN}])", " ", text
    )
    text = re.sub(f"[{OPEN}{CLOSE}{END}]", "", text)
    text = re.sub(rf"(∑[{SMALL}]*|ᵀ)(?=[^\W\d_ᵀ{SMALL}])", r"\1 ", text)
    text = re.sub(r"\s+/\s*|\s*/\s+", " / ", text)
    text = re.sub(r"([(\[{⌊⌈])\s+|\s+([)\]}⌋⌉,;])", lambda found: found[1] or found[2], text)
    return re.sub(r"\s+", " ", text).strip(" ,;")


def _minus(found: re.Match[str]) -> str:
    """Between two things it has room on both sides; elsewhere it is a sign."""
    before = found.string[: found.start()].rstrip()
    if not before:
        return "−"
    if before[-1] in "([{/":
        return "−"
    return " −" if before[-1] in SPACED + ",;" else " − "
