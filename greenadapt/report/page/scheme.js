"use strict";
{  // The choice of colours, which every page of this browser then has.
  const [root, scheme, NAME] = [document.documentElement, document.getElementById("scheme"), "greenadapt-scheme"];
  let chosen = "";
  try { chosen = localStorage.getItem(NAME); } catch { /* a browser may refuse storage to files */ }
  scheme.value = ["light", "dark"].includes(chosen) ? chosen : "";
  const use = () => { if (scheme.value) root.dataset.scheme = scheme.value; else delete root.dataset.scheme; };
  use();
  scheme.addEventListener("change", () => {
    use();
    try { localStorage.setItem(NAME, scheme.value); } catch { /* then the choice ends with the page */ }
  });
  scheme.closest("[hidden]").hidden = false;
}
