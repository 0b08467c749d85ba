// The buttons that change a job. Each shows the kubectl command that does the same; one that is not possible says why.

import { jobPath, postJson } from './api.js';
import { create, setContent, showDialog } from './dom.js';
import { formatError, t, translate } from './i18n.js';

const BUTTONS = ['suspend', 'resume', 'restart', 'delete'];
const ASKED = ['suspend', 'restart', 'delete'];
const COUNTS = {
  addCollector: { collectors: 1 }, removeCollector: { collectors: -1 }, addLearner: { learners: 1 }, removeLearner: { learners: -1 },
};

/** `counter(role)` has − and +; `element` has the other buttons and the line with the command. */
export function createActions(app) {
  const { state } = app;
  const buttons = new Map();
  const command = create('p', { class: 'command' });

  function createButton(action, label, className = '') {
    const show = () => showCommand(action);
    const button = create('button', { type: 'button', class: className, 'data-action': action, 'aria-label': t(`action.${action}`),
      click: () => perform(action), mouseenter: show, focus: show, mouseleave: hideCommand, blur: hideCommand }, label);
    buttons.set(action, button);
    return button;
  }

  function findAction(action) {
    return state.job?.actions.find((each) => each.action === action);
  }

  function showCommand(action) {
    const found = findAction(action);
    if (!found) return;
    setContent(command, [create('code', {}, found.command), found.disabled ? create('span', { class: 'warning' }, explainDisabled(found)) : null]);
  }

  function hideCommand() {
    setContent(command, t('commandHint'));
  }

  async function perform(action) {
    const { job } = state;
    const found = findAction(action);
    if (!found) return;
    if (found.disabled) return app.notify(`${t(`action.${action}`)}: ${explainDisabled(found)}`, { severity: 'warning', command: found.command });
    if (ASKED.includes(action) && !(await askUser(action, job, found.command))) return;
    const button = buttons.get(action);
    button.classList.add('busy');
    try {
      const verb = COUNTS[action] ? 'scale' : action;
      const done = await postJson(`${jobPath(job)}/${verb}`, { uid: job.uid, ...COUNTS[action] });
      app.notify(done.message, { severity: 'ok', command: done.command });
      if (action === 'delete') app.go('#/jobs');
    } catch (error) {
      app.notify(formatError(error), { severity: 'error', command: found.command });
    } finally {
      button.classList.remove('busy');
    }
  }

  function update() {
    for (const { action, command: line, disabled } of state.job?.actions ?? []) {
      const button = buttons.get(action);
      if (!button) continue;
      button.setAttribute('aria-disabled', String(Boolean(disabled)));
      button.title = disabled ? `${t(`action.${action}`)}: ${explainDisabled({ disabled })}\n${line}` : line;
    }
  }

  const row = create('div', { class: 'buttons' },
    BUTTONS.map((action) => createButton(action, t(`action.${action}`), action === 'delete' ? 'danger' : '')));
  const element = create('div', { class: 'actions' }, row, command);
  hideCommand();
  return { element, update, createCounter: (remove, add, value) => [createButton(remove, '−', 'step'), value, createButton(add, '+', 'step')] };
}

/** Why a button or a screen is disabled. */
export function explainDisabled({ disabled }) {
  const text = translate(`disabled.${disabled.code}`, disabled.message);
  return disabled.code === 'forbidden' ? `${text} (${disabled.message})` : text;
}

async function askUser(action, job, command) {
  const answer = await showDialog(t(`action.${action}`), create('form', { method: 'dialog' },
    create('h2', {}, t(`ask.${action}`, { job: `${job.namespace}/${job.name}` })), create('p', { class: 'command' }, create('code', {}, command)),
    create('div', { class: 'buttons end' }, create('button', { value: '', autofocus: true }, t('cancel')),
      create('button', { value: 'yes', class: action === 'delete' ? 'danger' : 'primary' }, t(`action.${action}`)))));
  return answer === 'yes';
}
