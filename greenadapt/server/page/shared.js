// What every page of the server has: elements, and requests with the token.

export const byId = (id) => document.getElementById(id);

// A browser may refuse storage; then the token ends with the page.
const TOKEN = "greenadapt-token";
let token = "";
try { token = sessionStorage.getItem(TOKEN) || ""; } catch { /* none */ }

// As errors.harmless: what controls nothing here, but turns the direction of the page, or shows nothing.
const UNSHOWN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/gu;
export const shown = (text) => String(text).replace(UNSHOWN, "\ufffd");

// Everything from the server or the user becomes text, never markup.
export const made = (tag, content, attributes = {}) => {
  const element = document.createElement(tag);
  element.append(...[content ?? []].flat().map((one) => (one instanceof Node ? one : shown(one))));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

export const asked = async (path, body) => {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const how = body && { method: "POST", body: JSON.stringify(body) };
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { ...how, headers });
  } catch {
    throw new Error("the server does not answer");
  }
  const found = await response.json().catch(() => ({}));
  if (response.ok) return found;
  if (response.status === 401) byId("token-form").hidden = false;
  throw new Error(found.error || `the server answers with status ${response.status}`);
};

export const whenTokenIsGiven = (start) => byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  try { sessionStorage.setItem(TOKEN, token); } catch { /* see above */ }
  start();
});
