// The search field and its list of matches.
import type { App } from "../app";
import { h, plural } from "../dom";
import { MAX_HITS } from "../render/highlights";
import { SearchIndex, type SearchEntry } from "./search_index";

const MAX_LISTED = 100;
const INDEX_WAIT_MS = 300; // after the details have come: the drawing is first
const TYPING_WAIT_MS = 90; // delay after a key press before searching

export class SearchPanel {
  readonly input = h("input", {
    type: "search",
    placeholder: "Search name, class, shape   /",
    "aria-label": "Search by name, class, function, shape or label",
    autocomplete: "off",
    spellcheck: "false",
  });
  readonly results = h("section", { class: "results", "aria-label": "Search results", hidden: true });
  private index: SearchIndex | null = null;
  private matches: SearchEntry[] = [];
  private current = -1;
  private timer = 0;

  constructor(private readonly app: App) {
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.search(), TYPING_WAIT_MS);
    });
    this.input.addEventListener("keydown", (event) => this.handleKey(event));
    app.on("details", () => {
      if (this.input.value) this.search();
      else window.setTimeout(() => this.openIndex(), INDEX_WAIT_MS);
    });
  }

  private handleKey(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      if (this.input.value) this.clear();
      else this.app.screen.focus();
    } else if (event.key === "Enter" || event.key === "ArrowDown") {
      clearTimeout(this.timer);
      if (this.lastQuery !== this.input.value) this.find();
      if (this.matches.length) this.step(event.shiftKey ? -1 : 1);
      else this.render();
    } else if (event.key === "ArrowUp") {
      this.step(-1);
    } else {
      return;
    }
    event.preventDefault();
  }

  private lastQuery = "";

  private search(): void {
    this.find();
    this.render();
  }

  private render(): void {
    this.renderList();
    this.app.emit("selection");
  }

  private find(): void {
    this.lastQuery = this.input.value;
    this.openIndex();
    this.matches = this.index?.find(this.input.value) ?? [];
    this.current = -1;
    this.app.searchHits = this.matches.slice(0, MAX_HITS).map((entry) => entry.path);
  }

  // Built in slices of time, before anyone types: of 100,000 operations it takes a third of a second.
  private openIndex(): void {
    const { details, data } = this.app;
    if (!details || this.index) return;
    this.index = new SearchIndex(data, details);
    if (!this.index.done) void this.index.ready.then(() => this.input.value && this.search());
  }

  clear(): void {
    this.input.value = "";
    this.search();
  }

  private step(step: number): void {
    if (!this.matches.length) return;
    this.current = (this.current + step + this.matches.length) % this.matches.length;
    this.app.show(this.matches[this.current].path);
    this.renderList();
    this.results.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  private renderList(): void {
    const query = this.input.value.trim();
    this.results.hidden = !query;
    const first = Math.max(0, Math.min(this.current - MAX_LISTED / 2, this.matches.length - MAX_LISTED));
    const rows = this.matches.slice(first, first + MAX_LISTED).map((entry, n) => this.renderRow(entry, first + n));
    const unlisted = this.matches.length - MAX_LISTED;
    const isIndexing = !this.index?.done;
    const summary = this.matches.length
      ? plural(this.matches.length, "hit")
      : isIndexing
        ? "Reading …"
        : "Nothing found";
    const position = this.current >= 0 ? `${this.current + 1} of ` : "";
    const hint = "Try part of a name, a class (Conv2d), a function (softmax) or a shape (64×55).";
    this.results.replaceChildren(
      h(
        "p",
        { class: "soft", role: "status" },
        position + summary + (isIndexing && this.matches.length ? " so far" : ""),
      ),
      this.matches.length ? h("ol", {}, ...rows) : h("p", { class: "hint" }, isIndexing ? "" : hint),
      unlisted > 0 ? h("p", { class: "hint" }, `${MAX_LISTED} are listed; Enter goes through all.`) : "",
    );
  }

  private renderRow(entry: SearchEntry, number: number): HTMLElement {
    const show = (): void => {
      this.current = number;
      this.app.show(entry.path);
      this.renderList();
    };
    const current = number === this.current && "true";
    const { name, kind, address, label } = entry;
    return h(
      "li",
      {},
      h(
        "button",
        { "aria-current": current, title: address, click: show },
        h("b", {}, name || kind),
        name ? h("span", { class: "soft" }, kind) : null,
        h("small", { class: "soft" }, [address !== name ? address : "", label].filter(Boolean).join("  ·  ")),
      ),
    );
  }
}
