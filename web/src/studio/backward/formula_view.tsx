// A rule's formula: in symbols, and with the numbers that they stand for.
import { formatNumber } from "../tables/value_format";
import type { FormulaPiece, OpFacts, SymbolRole, TensorFacts } from "./backward_steps";
import { TensorView } from "./number_table";

const ROLE_WORDS: Record<SymbolRole, string> = {
  arrived: "the gradient that arrived",
  result: "the result",
  read: "what was read",
  sent: "the gradient that is sent on",
  number: "a number",
};

/** Finds the tensor that a symbol stands for. */
export type Lookup = (role: SymbolRole, edge: number) => TensorFacts | null;

/** The equations of a rule, each twice; those of gradients that nobody asked for are left out. */
export function FormulaView({ op, lookup }: { op: OpFacts; lookup: Lookup }) {
  const equations = (op.equations ?? []).filter((pieces) => isWanted(pieces, lookup));
  if (!equations.length)
    return <p class="soft">{op.borrowed ? "Torch’s own rule: it has no formula here." : "It has no formula."}</p>;
  return (
    <div class="backward-formulas">
      {equations.map((pieces, place) => (
        <div class="backward-equation" key={place}>
          <p class="backward-symbols">
            {pieces.map((piece, number) => (
              <Symbol key={number} piece={piece} />
            ))}
          </p>
          {pieces.some((piece) => typeof piece !== "string") && (
            <div class="backward-substituted">
              {terms(pieces).map((term, number) => (
                <span key={number} class="backward-term">
                  {term.map((piece, place) => (
                    <Substituted key={place} piece={piece} lookup={lookup} />
                  ))}
                </span>
              ))}
            </div>
          )}
        </div>
      ))}
    </div>
  );
}

// Whether the gradient on the left was sent; where no symbol stands there, nothing is known against it.
function isWanted(pieces: FormulaPiece[], lookup: Lookup): boolean {
  const [first] = pieces;
  return typeof first === "string" || first[1] !== "sent" || lookup("sent", first[2]) !== null;
}

/** The pieces in groups: a line may break before an operator, not after it, and never before an exponent. */
export function terms(pieces: FormulaPiece[]): FormulaPiece[][] {
  const groups: FormulaPiece[][] = [[]];
  for (const piece of pieces) {
    const group = groups[groups.length - 1];
    const isEnded = group.some((part) => typeof part !== "string");
    if (typeof piece !== "string") {
      if (isEnded) groups.push([piece]);
      else group.push(piece);
      continue;
    }
    const [, suffix, rest] = /^(\S*)([^]*)$/.exec(piece)!;
    if (suffix) group.push(suffix);
    if (!rest) continue;
    if (isEnded || suffix) groups.push([rest]);
    else group.push(rest);
  }
  return groups;
}

function Symbol({ piece }: { piece: FormulaPiece }) {
  if (typeof piece === "string") return <>{piece}</>;
  const [text, role] = piece;
  return (
    <var class={role === "arrived" || role === "sent" ? "gradient" : ""} title={ROLE_WORDS[role]}>
      {text}
    </var>
  );
}

function Substituted({ piece, lookup }: { piece: FormulaPiece; lookup: Lookup }) {
  if (typeof piece === "string") return <span class="backward-sign">{piece}</span>;
  const [text, role, of] = piece;
  if (role === "number") return <span class="backward-number">{formatNumber(of, 4)}</span>;
  const tensor = lookup(role, of);
  return (
    <span
      class={`backward-operand ${role === "arrived" || role === "sent" ? "gradient" : ""}`}
      title={`${text}: ${ROLE_WORDS[role]}`}
    >
      {tensor ? <TensorView tensor={tensor} /> : <var>{text}</var>}
    </span>
  );
}

/** Whether the formula shows the gradient that was sent along an edge. */
export function showsSent(op: OpFacts, edge: number): boolean {
  const pieces = (op.equations ?? []).flat();
  return pieces.some((piece) => typeof piece !== "string" && piece[1] === "sent" && piece[2] === edge);
}
