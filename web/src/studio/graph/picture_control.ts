// The choice of what the boxes of the graph show, in the drawing's toolbar.
import { h } from "../../graph/dom";
import type { Store } from "../store";
import { PICTURE_CHOICES, type GraphPictures, type PictureChoice } from "./graph_pictures";

const TITLES: Record<PictureChoice, string> = { values: "values", lines: "norm over steps", none: "none" };
const NOT_LOGGED = "A watch logs it: tl.watch(model)";

/** Add the choice to a toolbar; returns a function that ends it. */
export function addPictureControl(store: Store, pictures: GraphPictures, toolbar: Element): () => void {
  const options = PICTURE_CHOICES.map((choice) => new Option(TITLES[choice], choice));
  const select = h("select", { change: () => pictures.choose(select.value as PictureChoice) }, ...options);
  select.value = pictures.choice.get();
  toolbar.lastElementChild!.before(h("label", { class: "group" }, "Pictures ", select));
  const update = (): void => {
    const isLogged = [...store.tables.get().values()].some(({ head }) => head.layer);
    const lines = options[PICTURE_CHOICES.indexOf("lines")];
    [lines.disabled, lines.title] = [!isLogged, isLogged ? "" : NOT_LOGGED];
  };
  update();
  return store.tables.subscribe(update);
}
