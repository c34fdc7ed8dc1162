// Where the view is in the network: breadcrumbs of open modules, and a field that finds a layer and goes there.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useValue } from "../../store";
import { findNodes } from "../fold/node_search";
import { pathTo, type TreeNode } from "../fold/scene_tree";
import type { NetworkPresenter } from "../presenter";

const MAX_LISTED = 12;

/** Over the upper left of the picture; absent where nothing folds. */
export function WayBar({ presenter }: { presenter: NetworkPresenter }) {
  const focus = useValue(presenter.folding.focus);
  useValue(presenter.folding.visible);
  const { tree } = presenter.folding;
  if (!tree) return null;
  const crumbs: (TreeNode | null)[] = [null, ...(focus ? [...pathTo(focus).slice(1), focus] : [])];
  return (
    <nav class="network-way" aria-label="Where you are in the network">
      <ol>
        {crumbs.map((node) => (
          <li key={node?.key ?? ""}>
            <button
              type="button"
              aria-current={node === focus ? "location" : undefined}
              title={node ? node.key : "The whole network, folded to what fits"}
              onClick={() => presenter.goOut(node)}
            >
              {node ? crumbTitle(node) : tree.root.title || "network"}
            </button>
          </li>
        ))}
      </ol>
      <LayerSearch presenter={presenter} />
    </nav>
  );
}

function crumbTitle({ title, count }: TreeNode): string {
  return count > 1 ? `${title} ×${count}` : title;
}

// The field and its list.
function LayerSearch({ presenter }: { presenter: NetworkPresenter }) {
  const [query, setQuery] = useState("");
  const [current, setCurrent] = useState(0);
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => {
    presenter.searchField = field.current; // the key that asks for it focuses it at once, so that no letter is lost
    return () => void (presenter.searchField = null);
  }, [presenter]);
  const { tree } = presenter.folding;
  const matches = tree && query.trim() ? findNodes(tree, query) : [];
  const end = (): void => {
    setQuery("");
    field.current?.blur();
  };
  const choose = (node: TreeNode): void => {
    presenter.goTo(node);
    end();
  };
  const handleKey = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key === "Escape") end();
    else if (event.key === "Enter" && matches[current]) choose(matches[current]);
    else if (event.key in steps) setCurrent(Math.max(0, Math.min(Math.min(matches.length, MAX_LISTED) - 1, current + steps[event.key])));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="network-search">
      <input
        ref={field} type="search" placeholder="Find a layer   /" aria-label="Find a layer by name, type or shape" autocomplete="off" spellcheck={false}
        value={query} onKeyDown={handleKey}
        onInput={(event) => { setQuery(event.currentTarget.value); setCurrent(0); }}
      />
      {query.trim() && (
        <ol aria-label="Layers found">
          {matches.slice(0, MAX_LISTED).map((node, n) => (
            <li key={node.key}>
              <button type="button" aria-current={n === current ? "true" : undefined} onMouseDown={(event) => event.preventDefault()} onClick={() => choose(node)}>
                <b>{node.face?.layer.name === node.key || node.sort !== "layer" ? node.key : node.title}</b>
                <span>{[node.kind, node.face?.layer.shape.join(" × ")].filter(Boolean).join(" · ")}</span>
              </button>
            </li>
          ))}
          {!matches.length && <li class="hint">Nothing found. Try part of a name, a type (Conv2d) or a shape (64 × 56).</li>}
          {matches.length > MAX_LISTED && <li class="hint">and {matches.length - MAX_LISTED} more</li>}
        </ol>
      )}
    </div>
  );
} // prettier-ignore
