// The axes of a tensor: for each its role, and a slider for those that are neither rows, columns nor tiles.
import type { TensorHead } from "../messages";
import { ROLES, roleOf, withPosition, withRole, type AxisChoice, type Role } from "./axis_choice";

interface AxisControlsProps {
  head: TensorHead;
  choice: AxisChoice;
  onChoice: (choice: AxisChoice) => void;
}

/** A line for each axis. */
export function AxisControls({ head, choice, onChoice }: AxisControlsProps) {
  if (!head.shape.length) return null;
  return (
    <div class="tensor-axes" role="group" aria-label="Axes">
      {head.shape.map((length, axis) => (
        <AxisLine key={`${axis} ${head.axes[axis]}`} {...{ head, choice, onChoice, axis, length }} />
      ))}
    </div>
  );
}

function AxisLine({ head, choice, onChoice, axis, length }: AxisControlsProps & { axis: number; length: number }) {
  const name = head.axes[axis] || `axis ${axis}`;
  const role = roleOf(choice, axis);
  const offset = axis === 0 && head.first > 0 ? head.first : 0;
  const position = choice.index[axis];
  const move = (to: number): void => onChoice(withPosition(choice, axis, Math.max(0, Math.min(length - 1, to))));
  return (
    <div class="tensor-axis">
      <label>
        <span title={`axis ${axis}`}>
          {name} <small class="soft">{length}</small>
        </span>
        <select
          aria-label={`${name} is`}
          value={role}
          onChange={({ currentTarget }) => onChoice(withRole(choice, axis, currentTarget.value as Role))}
        >
          {ROLES.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
          <option value="slider">one, by slider</option>
        </select>
      </label>
      {role === "slider" && length > 1 && (
        <span class="tensor-slider">
          <input
            type="range"
            aria-label={name}
            min={0}
            max={Math.max(0, length - 1)}
            value={position}
            aria-valuetext={`${position + offset} of ${length}`}
            onInput={({ currentTarget }) => move(Number(currentTarget.value))}
          />
          <input
            type="number"
            aria-label={`${name}, number`}
            min={offset}
            max={Math.max(0, length - 1) + offset}
            value={position + offset}
            onChange={({ currentTarget }) => move(Math.round(Number(currentTarget.value)) - offset || 0)}
          />
        </span>
      )}
    </div>
  );
}
