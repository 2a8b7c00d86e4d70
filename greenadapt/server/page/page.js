import { asked, byId, made, shown, whenTokenIsGiven } from "/shared.js";

(() => {
  const VIEWS = { mean: "average of both", base: "base tokenization", expanded: "expanded tokenization" };
  // Positions count Unicode code points, JavaScript's strings do not.
  const marked = (text, marks) => {
    const points = Array.from(text);
    const parts = [];
    let at = 0;
    for (const { start, end, element } of marks) {
      if (start < at) continue;
      parts.push(points.slice(at, start).join(""));
      element.prepend(shown(points.slice(start, end).join("")));
      parts.push(element);
      at = end;
    }
    return [...parts, points.slice(at).join("")];
  };

  const columnOf = (column, content) => made("article", [
    made("h3", [column.model, ...(column.view ? [made("small", VIEWS[column.view])] : [])]), ...[content].flat(),
  ]);

  const kinds = new Map();
  const kindOf = (type) => {
    if (!kinds.has(type)) kinds.set(type, 1 + (kinds.size % 4));
    return kinds.get(type);
  };
  const share = (value) => value.toFixed(2);
  const entityColumns = (columns, text) => {
    const key = (one) => `${one.start} ${one.end} ${one.type}`;
    const seen = columns.map(({ found }) => new Set(found.entities.map(key)));
    return columns.map((column) => {
      const marks = column.found.entities.map((one) => {
        const differs = !seen.every((each) => each.has(key(one)));
        const label = made("small", `${one.type} ${share(one.score)}`);
        const name = `kind-${kindOf(one.type)}${differs ? " differs" : ""}`;
        return { ...one, element: made("mark", label, { class: name }) };
      });
      return columnOf(column, made("p", marked(text, marks), { class: "read" }));
    });
  };
  const entitiesSaid = (columns) => {
    const counts = columns.map(({ found }) => found.entities.length);
    const said = columns.length > 1 ? counts.join(", ") : counts[0];
    const differ = document.querySelector("#entities mark.differs") ? "; dashed: not the same in all" : "";
    return `${said} ${counts.length === 1 && counts[0] === 1 ? "entity" : "entities"}${differ}`;
  };

  const labelColumns = (columns) => columns.map((column) => {
    const { label, probabilities, value } = column.found;
    if (value !== undefined && value !== null) return columnOf(column, made("p", value.toFixed(3)));
    const rows = Object.entries(probabilities).sort((a, b) => b[1] - a[1]).slice(0, 10).map(([name, probability]) => {
      const meter = made("meter", [], { min: 0, max: 1, value: probability, "aria-label": `probability of ${name}` });
      return made("tr", [
        made("th", name, { scope: "row" }), made("td", share(probability), { class: "number" }),
        made("td", meter, { class: "bar" }),
      ]);
    });
    return columnOf(column, [made("p", made("strong", label)), made("table", made("tbody", rows))]);
  });
  const labelsSaid = (columns) => {
    const said = columns.map(({ found }) => found.label ?? found.value?.toFixed(3));
    return columns.length > 1 && new Set(said).size > 1 ? "they differ" : "";
  };

  const paragraph = (text, start, end) => {  // of code points
    const points = Array.from(text);
    let from = start;
    let to = end;
    while (from > 0 && points[from - 1] !== "\n") from -= 1;
    while (to < points.length && points[to] !== "\n") to += 1;
    return { text: points.slice(from, to).join(""), start: start - from, end: end - from };
  };
  const linkTo = (document) => {  // where a paper can be read, if its name says so
    const article = /\bPMC\d+/.exec(document);
    if (article) return `https://pmc.ncbi.nlm.nih.gov/articles/${article[0]}/`;
    return /^10\.\d{4,9}\/\S+$/.test(document) ? `https://doi.org/${encodeURI(document)}` : null;
  };
  const answerItem = (one, texts, passages) => {
    const score = made("p", [made("strong", one.answer || "no answer"), ` ${share(one.score)}`]);
    if (one.start === null) return made("li", score);
    const around = paragraph(texts[one.document], one.start, one.end);
    const mark = { start: around.start, end: around.end, element: made("mark", []) };
    const passage = passages && passages[one.document];
    const link = passage && linkTo(passage.document);
    const name = passage && (link
      ? made("a", passage.document, { href: link, rel: "noreferrer noopener", target: "_blank" }) : passage.document);
    const source = passage
      ? [made("p", [passage.title ? `${passage.title} · ` : "", name], { class: "source" })]
      : [];
    return made("li", [score, ...source, made("p", marked(around.text, [mark]), { class: "paragraph" })]);
  };
  const answerColumns = (columns, text) => columns.map((column) => {
    const texts = column.passages ? column.passages.map((one) => one.text) : [text];
    const items = column.found.map((one) => answerItem(one, texts, column.passages));
    return columnOf(column, made("ol", items, { class: "answers" }));
  });
  const answersSaid = (columns) => {
    const said = new Set(columns.map(({ found }) => found[0]?.answer));
    return columns.length > 1 && said.size > 1 ? "their best answers differ" : "";
  };

  const nearColumns = (columns) => columns.map(({ model, found }) => {
    const table = (title, near) => made("table", [
      made("caption", title),
      made("tbody", near.map((one) => made("tr", [
        made("th", one.word, { scope: "row" }), made("td", share(one.cosine), { class: "number" }),
      ]))),
    ]);
    const is = found.is_added ? "an added word" : "a word of the base model";
    const tables = [table("Added words, by cosine", found.added), table("Wordpieces, by cosine", found.pieces)];
    return columnOf({ model }, [made("p", `${found.word} is ${is}.`), made("div", tables, { class: "columns" })]);
  });

  const predicted = (path, body, list) => async (model, views) => {
    const found = await asked(path, { ...body, model: model.name, ...(views.length > 1 ? { compare: true } : { view: views[0] }) });
    return views.map((view) => ({
      model: model.name, view: model.views.length ? view : null,
      found: list((found.views && found.views[view]) || found), passages: found.passages,
    }));
  };
  const ofText = (path, form, list) => predicted(path, { texts: [form.elements.text.value] }, list);
  const first = (found) => (found.predictions || found)[0];
  const inIndex = (form) => form.elements.where && form.elements.where.value === "index" && !form.querySelector("[data-where]").hidden;
  const EXAMPLE = "A 54-year-old woman with hypertension was given 20 mg of propranolol daily. Her tachycardia subsided within a week.";
  const TASKS = {
    ner: { section: "entities", title: "Entities", ask: (form) => ofText("/predict", form, first), columns: entityColumns,
      said: entitiesSaid, example: () => ({ text: EXAMPLE }) },
    classification: { section: "labels", title: "Labels", ask: (form) => ofText("/predict", form, first),
      columns: labelColumns, said: labelsSaid, example: () => ({ text: EXAMPLE }) },
    qa: { section: "answers", title: "Answers", columns: answerColumns, said: answersSaid,
      example: () => ({ question: "Which dose was given?", where: "text", text: EXAMPLE }),
      ask: (form) => {
        const { question, text } = form.elements;
        const body = { question: question.value, ...(inIndex(form) ? {} : { context: text.value }) };
        return predicted("/answer", body, (found) => found.answers || found);
      } },
    near: { section: "neighbours", title: "Neighbours", columns: nearColumns, said: () => "",
      example: (models) => ({ word: models[0].example_word }),
      ask: (form) => async ({ name }) => {
        const word = form.elements.word.value.trim();
        return [{ model: name, found: await asked("/neighbours", { word, model: name }) }];
      } },
  };

  const choices = (place, models, kind) => {
    if (models.length > 1) {
      const boxes = models.map((model) => {
        const box = made("input", [], { type: "checkbox", name: "model", value: model.name });
        box.checked = true;
        return made("label", [box, " ", model.name]);
      });
      place.append(made("fieldset", [made("legend", "Models"), ...boxes]));
    }
    if (kind === "near" || !models.some((model) => model.views.length)) return;
    const options = [["", "as trained"], ...Object.entries(VIEWS), ["all", "all three, side by side"]];
    const select = made("select", options.map(([value, name]) => made("option", name, { value })), { name: "view" });
    place.append(made("label", ["Read by ", select]));
  };

  const submitted = async (form, task, models) => {
    const section = form.closest("section");
    const status = form.querySelector("[role=status]");
    const button = form.querySelector("button");
    const place = section.querySelector("[data-found]");
    const ticked = [...form.querySelectorAll("[name=model]:checked")].map((box) => box.value);
    const wanted = models.filter((model) => models.length === 1 || ticked.includes(model.name));
    status.classList.remove("wrong");
    if (!wanted.length) { status.textContent = "Tick a model."; return; }
    status.textContent = "Computing …";
    button.disabled = true;
    try {
      const view = form.elements.view ? form.elements.view.value : "";
      const ask = task.ask(form);
      const text = form.elements.text ? form.elements.text.value : "";
      const columns = (await Promise.all(wanted.map((model) => {
        const all = view === "all" && model.views.length;
        return ask(model, all ? ["base", "expanded", "mean"] : [view === "all" ? model.view : view || model.view]);
      }))).flat();
      place.replaceChildren(...task.columns(columns, text));
      status.textContent = task.said(columns);
    } catch (error) {
      place.replaceChildren();
      status.textContent = shown(error.message);
      status.classList.add("wrong");
    } finally {
      button.disabled = false;
    }
  };

  const prepared = new Set();
  const prepare = (kind, task, models, hasIndex) => {
    const section = byId(task.section);
    section.hidden = false;
    byId("sections").append(made("li", made("a", task.title, { href: `#${task.section}` })));
    if (prepared.has(kind)) return;
    prepared.add(kind);
    const form = section.querySelector("form");
    choices(form.querySelector("[data-choices]"), models, kind);
    const where = form.querySelector("[data-where]");
    if (where) {
      const text = form.elements.text;
      const show = () => {
        form.querySelector("[data-text]").hidden = inIndex(form);
        text.required = !inIndex(form);
      };
      where.hidden = !hasIndex;
      where.addEventListener("change", show);
      show();
    }
    const example = task.example(models);
    const tryExample = form.querySelector("[data-example]");
    tryExample.hidden = Object.values(example).includes(null);
    tryExample.addEventListener("click", () => {
      for (const [name, value] of Object.entries(example)) form.elements[name].value = value;
      if (where) where.dispatchEvent(new Event("change"));
      form.requestSubmit();
    });
    form.addEventListener("submit", (event) => { event.preventDefault(); submitted(form, task, models); });
    for (const box of form.querySelectorAll("textarea")) {
      box.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
      });
    }
  };

  const start = async () => {
    const about = byId("about");
    try {
      const { models, index } = await asked("/models");
      byId("token-form").hidden = true;
      byId("sections").replaceChildren();
      for (const [kind, task] of Object.entries(TASKS)) {
        const able = models.filter((model) => (kind === "near" ? model.neighbours : model.kind === kind));
        if (able.length) prepare(kind, task, able, index);
      }
      about.textContent = shown(models.map((model) => model.name).join(", "));
    } catch (error) {
      about.textContent = shown(`${error.message[0].toUpperCase()}${error.message.slice(1)}.`);
    }
  };
  whenTokenIsGiven(start);
  start();
})();
