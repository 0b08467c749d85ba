// A table that renders only the rows in view: jobs can have thousands of replicas and change four times a second.

import { arrange, create, setContent } from './dom.js';

const OVERSCAN = 8;

export class DataTable {
  /**
   * A column has `title`, `cell(row)` (a string or nodes), and optionally `width` in pixels and `class`.
   * A row must be a new object when its data changed.
   */
  constructor({ label, columns, keyOf, openRow, emptyText, rowHeight = 34 }) {
    Object.assign(this, { columns, keyOf, openRow, emptyText, rowHeight });
    Object.assign(this, { rows: [], elements: new Map(), selected: null, scheduled: false });
    this.spacers = [create('tr', { class: 'spacer' }), create('tr', { class: 'spacer' })];
    this.body = create('tbody');
    this.empty = create('p', { class: 'empty' });
    const heads = columns.map((column) => create('th', { scope: 'col', class: column.class, title: column.title }, column.title));
    heads.forEach((head, index) => (head.style.width = columns[index].width ? `${columns[index].width}px` : ''));
    this.table = create('table', {}, create('thead', {}, create('tr', {}, heads)), this.body);
    this.element = create('div', { class: 'table', tabindex: 0, 'aria-label': label, role: 'region' }, this.table, this.empty);
    this.element.classList.toggle('opens', Boolean(openRow));
    this.element.style.setProperty('--row', `${rowHeight}px`);
    this.element.addEventListener('scroll', () => this.scheduleRender(), { passive: true });
    new ResizeObserver(() => this.render()).observe(this.element);
  }

  setRows(rows) {
    this.rows = rows;
    setContent(this.empty, rows.length ? '' : this.emptyText());
    this.table.setAttribute('aria-rowcount', rows.length);
    this.render();
  }

  scheduleRender() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.render();
    });
  }

  /** `force` renders rows again that did not change, since they show ages. */
  render(force = false) {
    // Reading the position costs a layout.
    const { scrollTop, clientHeight } = this.rows.length ? this.element : { scrollTop: 0, clientHeight: 0 };
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - OVERSCAN);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / this.rowHeight) + OVERSCAN);
    const elements = new Map();
    for (let index = first; index < last; index += 1) {
      const row = this.rows[index];
      const key = this.keyOf(row);
      const element = this.elements.get(key) ?? this.createRow();
      this.updateRow(element, row, index, force);
      elements.set(key, element);
    }
    this.elements = elements;
    this.spacers[0].style.height = `${Math.min(first, this.rows.length) * this.rowHeight}px`;
    this.spacers[1].style.height = `${Math.max(0, this.rows.length - last) * this.rowHeight}px`;
    arrange(this.body, [this.spacers[0], ...elements.values(), this.spacers[1]]);
  }

  createRow() {
    const element = create('tr', {}, this.columns.map((column) => create('td', { class: column.class })));
    element.addEventListener('click', (event) => {
      if (event.target.closest('a, button') || String(getSelection())) return;
      this.openElement(element);
    });
    return element;
  }

  openElement(element) {
    this.selected = this.keyOf(element.row);
    this.render();
    this.openRow?.(element.row);
  }

  updateRow(element, row, index, force) {
    element.setAttribute('aria-rowindex', index + 1);
    element.setAttribute('aria-selected', String(this.keyOf(row) === this.selected));
    if (element.row === row && !force) return;
    element.row = row;
    this.columns.forEach((column, at) => {
      const content = column.cell(row);
      setContent(element.cells[at], content);
      // A text may be cut off.
      if (typeof content === 'string') element.cells[at].title = content;
    });
  }

  moveSelection(delta) {
    if (!this.rows.length) return;
    const now = this.rows.findIndex((row) => this.keyOf(row) === this.selected);
    const index = Math.min(this.rows.length - 1, Math.max(0, now < 0 ? 0 : now + delta));
    this.selected = this.keyOf(this.rows[index]);
    this.revealRow(index);
    this.render();
  }

  revealRow(index) {
    const top = index * this.rowHeight;
    const room = this.element.clientHeight - this.table.tHead.offsetHeight - this.rowHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + room) this.element.scrollTop = top - room;
    this.element.scrollIntoView({ block: 'nearest' });
  }

  openSelected() {
    const row = this.rows.find((each) => this.keyOf(each) === this.selected);
    if (row) this.openRow?.(row);
    return Boolean(row);
  }
}
