// Finds modules and layers of the tree by name, type or shape.
import { walk, type SceneTree, type TreeNode } from "./scene_tree";

/** The nodes that match every word, names that end with the query first, then in the order in which they ran. */
export function findNodes({ root }: SceneTree, query: string): TreeNode[] {
  const words = normalise(query).split(/\s+/).filter(Boolean);
  const matches = [...walk(root)].filter((node) => node !== root && words.every((word) => textOf(node).includes(word)));
  const isExact = (node: TreeNode): boolean => normalise(node.key).endsWith(words.join(" "));
  return [...matches.filter(isExact), ...matches.filter((node) => !isExact(node))];
}

function textOf({ key, kind, face }: TreeNode): string {
  return normalise(`${key} ${kind} ${face?.layer.shape.join("×") ?? ""}`);
}

// "64 × 56", "64x56" and "64×56" are alike.
function normalise(text: string): string {
  return text.toLowerCase().replace(/(\d)\s*[x×]\s*(?=\d)/g, "$1×");
}
