// Entry point of the drawing's page: unpack the payload, build the panels, show the model.
import { Details, fromBase64, parsePayload, unpack } from "./payload";
import { fitToScreen, showDrawing } from "./drawing_view";
import { h } from "./dom";
import { themeCss, watchTheme } from "./drawing_theme";
import css from "./graph.css";
import pageCss from "./graph_page.css";

async function start(): Promise<void> {
  const root = document.getElementById("torcheer")!;
  const textOf = (id: string): string => document.getElementById(id)?.textContent ?? "";
  try {
    const data = parsePayload(await unpack(fromBase64(textOf("data"))));
    data.font = textOf("font");
    document.head.append(h("style", {}, themeCss(data) + pageCss + css));
    const { app } = showDrawing(data, root, { themed: document.documentElement, keys: document, isPage: true });
    watchTheme(app);
    fitToScreen(app);
    await new Promise((resolve) => setTimeout(resolve, 30)); // let the drawing appear before the details are parsed
    app.details = new Details(await unpack(fromBase64(textOf("details"))));
    app.emit("details");
    root.dataset.ready = "true";
  } catch (error) {
    root.replaceChildren(h("p", { role: "alert" }, `This drawing cannot be opened: ${String(error)}`));
    throw error;
  }
}

void start();
