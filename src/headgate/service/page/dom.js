/** Elements made of text and attributes, and shown in place of earlier ones. Nothing here reads HTML. */

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/** An HTML element; children are elements, texts, lists of them, or nothing. */
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** An element of a picture. */
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (is(value)) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(is));
  return element;
}

const is = (value) => value !== null && value !== undefined && value !== false;

/** Makes the children of a place equal to these. What is there stays if it fits, with its focus, scroll and open details. */
export function show(place, ...children) {
  matchChildren(place, el("div", {}, ...children));
}

function matchChildren(shown, wanted) {
  const keyed = new Map([...shown.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let at = shown.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = keyOf(next);
    const same = key ? keyed.get(key) : at;
    keyed.delete(key);
    if (same && same.nodeName === next.nodeName && keyOf(same) === key) {
      if (same === at) at = at.nextSibling;
      else shown.insertBefore(same, at);
      match(same, next);
    } else {
      shown.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function match(shown, wanted) {
  if (shown.nodeType === Node.TEXT_NODE) {
    if (shown.nodeValue !== wanted.nodeValue) shown.nodeValue = wanted.nodeValue;
    return;
  }
  for (const { name } of [...shown.attributes]) {
    // Whoever reads has opened it.
    if (!wanted.hasAttribute(name) && name !== "open") shown.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  }
  matchChildren(shown, wanted);
}

const keyOf = (node) => node.dataset?.key;
