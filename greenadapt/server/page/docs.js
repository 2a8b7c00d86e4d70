import { asked, byId, made, whenTokenIsGiven } from "/shared.js";

const code = (text) => made("code", text);
const idOf = (name) => `object-${name}`;
const nameOf = (reference) => reference.split("/").pop();
// Text in which names stand between backticks.
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? code(part) : part));
const between = (parts, word) => parts.flatMap((part, i) => (i ? [word, part] : [part])).flat();

// The type of a value in words, with links to the objects in it.
const typeOf = (schema) => {
  if (schema.$ref) return [made("a", nameOf(schema.$ref), { href: `#${idOf(nameOf(schema.$ref))}` })];
  const several = schema.anyOf || schema.oneOf;
  if (several) return between(several.map(typeOf), " or ");
  if (schema.enum) return between(schema.enum.map((value) => [code(JSON.stringify(value))]), ", ");
  if (schema.const !== undefined) return [code(JSON.stringify(schema.const))];
  if (schema.type === "array") return ["list of ", ...inside(schema.items || {})];
  if (schema.type === "object" && schema.additionalProperties) return ["object of ", ...inside(schema.additionalProperties)];
  return [schema.type || "anything"];
};
const inside = (schema) => (schema.anyOf || schema.oneOf ? ["(", ...typeOf(schema), ")"] : typeOf(schema));
const LIMITS = {
  minimum: ["at least", ""], maximum: ["at most", ""], minLength: ["at least", "characters"],
  maxLength: ["at most", "characters"], minItems: ["at least", "entries"], maxItems: ["at most", "entries"],
};
const limitsOf = (schema) => [schema, ...(schema.anyOf || [])].flatMap((one) => Object.entries(LIMITS)
  .filter(([key]) => one[key] !== undefined).map(([key, [word, unit]]) => `${word} ${one[key]} ${unit}`.trim())).join("; ");

const table = (caption, head, rows) => made("div", made("table", [
  made("caption", caption),
  made("thead", made("tr", head.map((name) => made("th", name, { scope: "col" })))),
  made("tbody", rows.map(([first, ...rest]) => made("tr", [
    made("th", first, { scope: "row" }), ...rest.map((cell) => made("td", cell)),
  ]))),
]), { class: "scroll" });

const fieldRows = (schema) => Object.entries(schema.properties || {}).map(([name, field]) => {
  const isRequired = (schema.required || []).includes(name);
  const given = field.default === undefined || field.default === null ? "" : `default ${JSON.stringify(field.default)}`;
  const said = [isRequired ? "required" : "", given, limitsOf(field)].filter(Boolean).join("; ");
  return [code(name), typeOf(field), said, prose(field.description || "")];
});
const fieldTable = (caption, schema) => table(caption, ["field", "type", "limits", "meaning"], fieldRows(schema));

// A value that has what is required.
const exampleOf = (schema, objects) => {
  if (schema.$ref) return exampleOf(objects[nameOf(schema.$ref)] || {}, objects);
  if (schema.anyOf) return exampleOf(schema.anyOf[0], objects);
  if (schema.type === "array") return [exampleOf(schema.items || {}, objects)];
  if (schema.type === "object") {
    return Object.fromEntries((schema.required || []).map((name) => [name, exampleOf(schema.properties[name], objects)]));
  }
  return { integer: 1, number: 1, boolean: true }[schema.type] ?? "…";
};

const jsonOf = (content) => content && content["application/json"] && content["application/json"].schema;
const curlOf = (method, path, schema, objects) => {
  if (method === "get") return `curl ${location.origin}${path}`;
  return `curl ${location.origin}${path} --json '${JSON.stringify(exampleOf(schema || {}, objects))}'`;
};

const operationOf = (path, method, operation, objects) => {
  const title = `${method.toUpperCase()} ${path}`;
  const id = `${method}${path.replaceAll("/", "-")}`;
  const asks = jsonOf(operation.requestBody && operation.requestBody.content);
  const object = asks && asks.$ref && objects[nameOf(asks.$ref)];
  const statuses = Object.entries(operation.responses || {}).map(([status, answer]) => {
    const schema = jsonOf(answer.content);
    return [status, schema && Object.keys(schema).length ? typeOf(schema) : "", prose(answer.description || "")];
  });
  byId("sections").append(made("li", made("a", title, { href: `#${id}` })));
  return made("section", [
    made("h2", title, { id: `${id}-title` }),
    made("p", prose([operation.summary, object && object.description].filter(Boolean).join(". "))),
    made("pre", code(curlOf(method, path, asks, objects))),
    ...(object ? [fieldTable("The request, a JSON object", object)] : []),
    table("The answer", ["status", "type", "meaning"], statuses),
  ], { id, "aria-labelledby": `${id}-title` });
};

const start = async () => {
  const about = byId("about");
  try {
    const { info, paths, components } = await asked("/openapi.json");
    const objects = (components && components.schemas) || {};
    byId("token-form").hidden = true;
    byId("sections").replaceChildren();
    byId("paths").replaceChildren(...Object.entries(paths).flatMap(([path, methods]) => Object.entries(methods)
      .map(([method, operation]) => operationOf(path, method, operation, objects))));
    const title = byId("objects-title");
    byId("objects").replaceChildren(title, ...Object.entries(objects).flatMap(([name, schema]) => [
      made("h3", name, { id: idOf(name) }), made("p", prose(schema.description || "")), fieldTable("", schema),
    ]));
    byId("objects").hidden = false;
    byId("sections").append(made("li", made("a", "Objects", { href: "#objects" })));
    about.textContent = `${info.title} ${info.version}. ${info.description || ""}`;
  } catch (error) {
    about.textContent = `${error.message[0].toUpperCase()}${error.message.slice(1)}.`;
  }
};
whenTokenIsGiven(start);
start();
