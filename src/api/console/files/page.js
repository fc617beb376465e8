// What pages with a list have in common: a field to filter it, its foot, and the view of what was chosen.

import { debounce, fill, h, icon } from "./dom.js"
import { VirtualList } from "./list.js"
import { read } from "./store.js"

/** A page with a list and a view beside it. Subclasses build it, and may set `stream` and `draw`, which end with the page. */
export class ListPage {
  constructor(context) {
    Object.assign(this, context)
  }

  /**
   * Puts the page into `main`. `list` are the options of the list, and `search` the properties of the filter, with `wait`
   * for the time without input after which `oninput` is called. `tools` gives the content of the bar from the filter;
   * `above` stands over the list, and `side` before all. `pane` and `split` are kinds of their elements.
   */
  build(main, { list, search: { wait = 100, oninput, ...search }, detail, tools, above, side, pane = "", split = "" }) {
    this.columns = list.columns
    this.list = new VirtualList(list)
    this.search = h("input", { type: "search", oninput: debounce(oninput ?? (() => this.draw()), wait), ...search })
    this.count = h("span.note", null)
    this.detail = h("section.detail", { "aria-label": detail, tabindex: "-1" })
    this.split = h(
      `div.split${split}`,
      null,
      side,
      h(
        `div.pane${pane}`,
        null,
        h("div.toolbar", null, tools ? tools(this.search) : this.search),
        above,
        this.list.element,
        h("div.foot", null, this.count),
      ),
      this.detail,
    )
    main.append(this.split)
  }

  /** Shows a text in place of the list, or the list if there is none. */
  replaceList(text) {
    this.blank?.remove()
    this.blank = text || null
    this.list.element.hidden = Boolean(text)
    if (text) this.list.element.after(text)
  }

  /** Says in the view what to choose. */
  hint(text) {
    fill(this.detail, h("div.hint", null, text))
  }

  /** Fills the view of a page whose address does not say what is chosen. */
  present(title, ...content) {
    const back = () => this.split.classList.remove("has-detail")
    this.split.classList.add("has-detail")
    fill(
      this.detail,
      h(
        "header",
        null,
        h("button.icon-button.back", { type: "button", "aria-label": "Back to the list", onclick: back }, icon("back")),
        title,
      ),
      ...content,
    )
  }

  /** Reads targets at the moment that is shown. */
  async past(targets, show) {
    try {
      const { entities } = await read(targets, { index: String(this.at.index) }, { signal: this.signal })
      show(entities)
    } catch (error) {
      if (error.name !== "AbortError") fill(this.detail, h("p.problem", null, error.message))
    }
  }

  stop() {
    this.stream?.stop()
    this.list.destroy()
    this.draw?.cancel()
  }
}

/** The function that opens a page, for the frame: it knows `stop` and, if the page has it, `move`. */
export function opens(Page) {
  return (main, context) => {
    const page = new Page(main, context)
    return { stop: () => page.stop(), move: page.move && ((parts, query) => page.move(parts, query)) }
  }
}
