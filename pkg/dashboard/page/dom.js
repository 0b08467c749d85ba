// Creates and updates elements. Strings become text nodes, never HTML: most of them come from the cluster.

import { t } from './i18n.js';

/** An attribute whose value is a function is an event listener. */
export function create(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets a string or nodes; keeps the text node if the string is the same. */
export function setContent(element, content) {
  if (typeof content !== 'string') element.replaceChildren(...[content].flat().filter(Boolean));
  else if (element.childElementCount || element.textContent !== content) element.textContent = content;
}

/** Makes `elements` the children of `container` and leaves those alone that are in their place. */
export function arrange(container, elements) {
  const kept = new Set(elements);
  for (const child of [...container.children]) if (!kept.has(child)) child.remove();
  elements.forEach((element, index) => {
    if (container.children[index] !== element) container.insertBefore(element, container.children[index] ?? null);
  });
}

const lists = new WeakMap();

/** Shows one element per item and renders only the items that changed. An open <details> stays open. */
export function patchList(container, items, keyOf, render) {
  const before = lists.get(container) ?? new Map();
  const after = new Map();
  for (const item of items) {
    const text = JSON.stringify(item);
    let entry = before.get(keyOf(item));
    if (entry?.text !== text) {
      const element = render(item);
      if (entry?.element.open) element.open = true;
      entry = { text, element };
    }
    after.set(keyOf(item), entry);
  }
  lists.set(container, after);
  arrange(container, [...after.values()].map((entry) => entry.element));
}

/** Shows a modal dialog; the promise has its return value ('' after Escape). */
export function showDialog(label, ...content) {
  const dialog = create('dialog', { 'aria-label': label }, ...content);
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}

export function createFilter(input, label = t('filter')) {
  return create('input', { type: 'search', class: 'filter', placeholder: `${label}  /`, 'aria-label': label, input });
}

/** Shows buttons that filter by a value, each with its count. */
export function patchChips(container, counts, selected, select) {
  const chips = [...counts].map(([value, { label, count }]) => ({ value, label, count, on: value === selected }));
  const render = ({ value, label, count, on }) => create('button',
    { class: 'chip', type: 'button', 'aria-pressed': String(on), click: () => select(on ? null : value) },
    label, create('b', {}, String(count)));
  patchList(container, chips, (chip) => chip.value, render);
}

export function copyText(text) {
  return navigator.clipboard?.writeText(text);
}
