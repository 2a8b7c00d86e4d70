const byId = (id) => document.getElementById(id);
const VIEWS = { mean: "average of both", base: "base tokenization", expanded: "expanded tokenization" };
let models = [];

const make = (name, content = "") => {
  const element = document.createElement(name);
  element.append(...[content].flat());
  return element;
};

const say = (message, isWrong = false) => {
  byId("status").textContent = message;
  byId("status").className = isWrong ? "wrong" : "";
};

const ask = async (path, body) => {
  const headers = { "Content-Type": "application/json" };
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  const response = await fetch(path, options).catch(() => { throw new Error("the server does not answer"); });
  if (response.status === 401) byId("token-form").hidden = false;
  if (!response.ok) {
    const error = await response.json().catch(() => ({}));
    throw new Error(error.detail ?? `the server answers ${response.status}`);
  }
  return response.json();
};

// Positions count Unicode code points, JavaScript's strings do not.
const markText = (text, spans) => {
  const points = Array.from(text);
  const paragraph = make("p");
  paragraph.className = "text";
  let at = 0;
  for (const { start, end, label } of spans) {
    if (start < at) continue;
    const mark = make("mark", [points.slice(start, end).join(""), make("small", label)]);
    paragraph.append(points.slice(at, start).join(""), mark);
    at = end;
  }
  paragraph.append(points.slice(at).join(""));
  return paragraph;
};

const showPrediction = (prediction, text) => {
  if (prediction.entities) {
    return [markText(text, prediction.entities.map((entity) => (
      { start: entity.start, end: entity.end, label: `${entity.type} ${entity.score.toFixed(2)}` })))];
  }
  if (prediction.probabilities === undefined) return [make("p", String(prediction.value))];
  const sorted = Object.entries(prediction.probabilities).sort((a, b) => b[1] - a[1]).slice(0, 10);
  return [make("ol", sorted.map(([label, probability]) => make("li", `${label} ${probability.toFixed(2)}`)))];
};

const showAnswers = ({ answers, passages }, text) => [make("ol", answers.map((answer) => {
  const score = answer.score.toFixed(2);
  if (answer.start === null) return make("li", `no answer ${score}`);
  const passage = passages?.[answer.document];
  const span = { start: answer.start, end: answer.end, label: score };
  return make("li", [make("p", [make("strong", answer.answer), passage ? ` ${passage.title} ${passage.document}` : ""]),
    markText(passage ? passage.text : text, [span])]);
}))];

const predict = async (model, view) => {
  const text = byId("text").value;
  const request = { model: model.name, ...(view ? { view } : {}) };
  if (model.kind !== "qa") {
    return showPrediction((await ask("/predict", { ...request, texts: [text] })).predictions[0], text);
  }
  const context = text ? { context: text } : {};
  return showAnswers(await ask("/answer", { ...request, ...context, question: byId("question").value }), text);
};

const chosen = () => models.find((model) => model.name === byId("model").value);

const submit = async () => {
  const model = chosen();
  const view = model.views.length ? byId("view").value : "";
  say("Computing …");
  try {
    const views = view === "all" ? model.views : [view];
    const parts = await Promise.all(views.map((name) => predict(model, name)));
    byId("results").replaceChildren(...views.flatMap((name, i) => [make("h2", VIEWS[name] ?? model.name), ...parts[i]]));
    say("");
  } catch (error) {
    byId("results").replaceChildren();
    say(error.message, true);
  }
};

const showFields = () => {
  byId("question-row").hidden = chosen().kind !== "qa";
  byId("question").required = chosen().kind === "qa";
  byId("view-row").hidden = !chosen().views.length;
};

const start = async () => {
  say("Asking the server what it has …");
  try {
    models = (await ask("/models")).models;
    byId("token-form").hidden = true;
    byId("model").replaceChildren(...models.map((model) => make("option", model.name)));
    byId("ask").hidden = false;
    showFields();
    say("");
  } catch (error) {
    say(error.message, true);
  }
};

byId("model").addEventListener("change", showFields);
byId("ask").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value.trim());
  start();
});
start();
