"""LaTeX as readable text."""

from __future__ import annotations

import pytest
from seams import equations, latex_to_text


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\bar x = \bar y \odot (1 - y^2)", "x̄ = ȳ ⊙ (1 − y²)"),
        (r"\bar x=-\bar y", "x̄ = −ȳ"),
        (r"\bar x = \frac{\bar y}{2\sqrt{x}}", "x̄ = ȳ/(2√x)"),
        (r"\bar b = -\frac{a}{b^2}\bar y", "b̄ = −a/b² ȳ"),
        (r"\bar x = -\tfrac12\,\bar y \odot y^3", "x̄ = −1/2 ȳ ⊙ y³"),
        (r"\bar A = \bar Y B^\top", "Ā = Ȳ Bᵀ"),
        (r"\bar x_i = \sum_j \bar y_j w_{ij}", "x̄ᵢ = ∑ⱼ ȳⱼ wᵢⱼ"),
        (r"\bar x = \bar y\,n\,x^{n-1}", "x̄ = ȳ n xⁿ⁻¹"),
        (r"\bar x = \bar y \odot \mathbb 1[x > 0]", "x̄ = ȳ ⊙ 𝟙[x > 0]"),
        (r"\bar x = \bar y \odot \sigma(x)\left(1 - \sigma(x)\right)", "x̄ = ȳ ⊙ σ(x)(1 − σ(x))"),
        (r"\bar x = \bar y \log b \exp x", "x̄ = ȳ log b exp x"),
        (r"\max(x, 0) \le \operatorname{clip}(x)", "max(x, 0) ≤ clip(x)"),
        (r"\bar x_{\text{index}} \mathrel{+}= \bar y", "x̄_index += ȳ"),
        (r"\bar w = x \star \bar y * z \otimes q \times r \cdot s", "w̄ = x ⋆ ȳ * z ⊗ q × r · s"),
        (r"\partial L / \partial x", "∂L / ∂x"),
        (r"\bar x = \bar y\,e^{-x^2}", "x̄ = ȳ e^(−x²)"),
        (r"\text{permute}^{-1}(\bar y) \ne \bar z \to 0 \ge 1", "permute⁻¹(ȳ) ≠ z̄ → 0 ≥ 1"),
        (r"\overline{(x - t)^2}", "mean((x − t)²)"),
        (r"\bar x = \lfloor a/b \rfloor", "x̄ = ⌊a/b⌋"),
        (r"\foo x", "foo x"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_formula_is_one_line_of_text(latex: str, text: str) -> None:
    assert latex_to_text(latex) == text


@pytest.mark.parametrize("broken", ["{", "}", "\\", r"x^{", r"\frac", r"\text{a", r"\bar", "^", r"\sqrt{", "$x$"])
def test_a_broken_formula_is_still_some_text(broken: str) -> None:
    assert isinstance(latex_to_text(broken), str)


def test_each_gradient_is_an_equation_of_its_own() -> None:
    assert equations(r"\bar a = \bar y\,[a > b], \bar b = \bar y\,f(a, b)") == ["ā = ȳ [a > b]", "b̄ = ȳ f(a, b)"]
    assert equations(r"\bar x_i = \bar y,\quad \bar w_{\text{at}} \mathrel{+}= \bar y") == ["x̄ᵢ = ȳ", "w̄ₐₜ += ȳ"]
    assert equations("") == []
