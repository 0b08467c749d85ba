// The entry: session, routes, header, keys and notices.

import { openSession } from './api.js';
import { copyText, create, setContent, showDialog } from './dom.js';
import { applyLanguage, formatError, isChinese, switchLanguage, t } from './i18n.js';
import { createJobsScreen } from './jobs.js';
import { state, Watch } from './watch.js';

const THEMES = ['auto', 'light', 'dark'];
const THEME_SIGNS = { auto: '◐', light: '☀', dark: '☾' };
const NOTICE_MS = 9000;
const TICK_MS = 1000;
const PRELOAD_MS = 1000;
const HELP = [['j k ↓ ↑', 'key.move'], ['Enter', 'key.open'], ['Esc', 'key.back'], ['/', 'key.filter'],
  ['1 2', 'key.screens'], ['o t l', 'key.tabs'], ['f', 'key.follow'], ['?', 'key.help']];
const TABS = { o: '', t: '/training', l: '/logs' };
// Without these screens, the list of jobs is shown sooner.
const SCREENS = {
  overview: async () => (await import('./job.js')).createJobScreen,
  training: async () => (await import('./training.js')).createTrainingScreen,
  logs: async () => (await import('./logs.js')).createLogsScreen,
  cluster: async () => (await import('./cluster.js')).createClusterScreen,
};
const ALL = new Set(['jobs', 'job', 'replicas', 'problem', 'connection']);

const app = { session: null, namespace: '', state, go, notify, setNamespace };
const changed = new Set();
const watch = new Watch(scheduleUpdate, showSignIn);
let screen = null;
let theme = localStorage.getItem('di-theme') ?? 'auto';

function go(hash) {
  location.hash = hash;
}

function setNamespace(namespace) {
  app.namespace = namespace;
  mountScreen();
}

/** #/jobs, #/jobs/NS/NAME, #/jobs/NS/NAME/training, #/jobs/NS/NAME/logs?replica=POD, #/cluster */
function parseRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [section, namespace, name, tab = 'overview'] = path.split('/');
  return { section, namespace, name, tab, query: new URLSearchParams(query) };
}

/** Returns the function that creates the screen of a route. */
function loadScreen({ section, name, tab }) {
  if (section === 'cluster') return SCREENS.cluster();
  if (section !== 'jobs' || !name) return createJobsScreen;
  return (SCREENS[tab] ?? SCREENS.overview)();
}

/** So that all screens can be opened after the server has ended. */
function preloadScreens() {
  for (const load of Object.values(SCREENS)) load();
}

/** Shows the screen of the address, also again after the language or the colours changed. */
async function mountScreen() {
  if (location.hash.startsWith('#token=')) return location.reload();
  if (!app.session) return;
  const route = parseRoute();
  const job = route.section === 'jobs' && route.name ? `${route.namespace}/${route.name}` : null;
  screen?.close?.();
  screen = null;
  app.job = job;
  watch.open(app.namespace, job);
  const { hash } = location;
  const createScreen = await loadScreen(route);
  if (hash !== location.hash || screen || !app.session) return;
  screen = createScreen(app, route);
  document.title = `${job ?? t(route.section === 'cluster' ? 'cluster' : 'jobs')} – DI Orchestrator`;
  document.getElementById('screen').replaceChildren(screen.element);
  showHeader(route.section);
  showBanner();
  screen.update(ALL);
}

function showHeader(section) {
  const { server, readOnly, version } = app.session;
  const link = (name) => create('a', { href: `#/${name}`, 'aria-current': name === section ? 'page' : null }, t(name));
  const img = create('img', { src: '/icon.svg', alt: '', width: 22, height: 22 });
  const sign = (label, text, click, id) => create('button', { type: 'button', class: 'sign', title: label, 'aria-label': label, click, id }, text);
  document.getElementById('top').replaceChildren(
    create('a', { href: '#/jobs', class: 'brand', title: `DI Orchestrator ${version}` }, img, create('span', {}, 'DI Orchestrator')),
    create('nav', {}, link('jobs'), link('cluster')), create('span', { class: 'grow' }),
    ...(readOnly ? [create('span', { class: 'pill muted' }, t('readOnly'))] : []),
    create('span', { class: 'server muted', title: server }, server), create('span', { id: 'live', title: t('live') }),
    sign(t('language'), isChinese() ? 'EN' : '中', changeLanguage, 'language'),
    sign(t(`theme.${theme}`), THEME_SIGNS[theme], changeTheme, 'theme'), sign(t('help'), '?', showHelp, 'help'));
}

function showBanner() {
  const { connected, problem } = state;
  const why = [problem?.list, problem?.job].filter(Boolean).join(' ');
  const banner = document.getElementById('banner');
  setContent(banner, !connected ? t('disconnected') : why ? t('outdated', { why }) : '');
  banner.hidden = !banner.textContent;
  document.getElementById('live')?.classList.toggle('off', !connected || Boolean(why));
}

/** Events of one frame update the screen once; a hidden tab waits until it is visible. */
function scheduleUpdate(kind) {
  changed.add(kind);
  if (changed.size > 1) return;
  requestAnimationFrame(() => {
    const kinds = new Set(changed);
    changed.clear();
    if (kinds.has('problem') || kinds.has('connection')) showBanner();
    screen?.update(kinds);
  });
}

function showSignIn(error) {
  screen?.close?.();
  screen = null;
  app.session = null;
  watch.disconnect();
  const why = error && error.status !== 401 ? formatError(error) : t('signInWhy');
  const img = create('img', { src: '/icon.svg', alt: '', width: 48, height: 48 });
  document.getElementById('screen').replaceChildren(create('div', { class: 'signin' },
    img, create('h1', {}, t('signIn')), create('p', {}, why), create('pre', {}, 'http://127.0.0.1:PORT/#token=…')));
}

function notify(text, { severity = 'ok', command } = {}) {
  const close = () => notice.remove();
  const notice = create('div', { class: `notice ${severity}` },
    create('div', {}, create('span', {}, text), command ? create('code', {}, command) : null),
    command ? create('button', { type: 'button', click: () => copyText(command) }, t('copy')) : null,
    create('button', { type: 'button', class: 'sign', 'aria-label': t('close'), click: close }, '×'));
  document.getElementById('notices').append(notice);
  setTimeout(close, severity === 'ok' ? NOTICE_MS : 2 * NOTICE_MS);
}

function applyTheme() {
  document.documentElement.dataset.theme = theme;
}

function changeTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem('di-theme', theme);
  applyTheme();
  mountScreen().then(() => document.getElementById('theme').focus());
}

function changeLanguage() {
  switchLanguage();
  mountScreen().then(() => document.getElementById('language').focus());
}

function showHelp() {
  const rows = HELP.flatMap(([keys, text]) => [create('dt', {}, keys.split(' ').map((key) => create('kbd', {}, key))), create('dd', {}, t(text))]);
  showDialog(t('help'), create('form', { method: 'dialog' }, create('h2', {}, t('help')), create('dl', { class: 'keys' }, rows),
    create('div', { class: 'buttons end' }, create('button', { autofocus: true }, t('close')))));
}

function handleKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector('dialog') || !screen) return;
  const { target, key } = event;
  if (target.matches('input, select, textarea')) {
    if (key === 'Escape' && target === screen.filter) clearFilter(target);
    if (key === 'Escape' || (key === 'Enter' && target === screen.filter)) target.blur();
    return;
  }
  if (key === 'Enter' && target.matches('a, button, summary')) return;
  if (screen.handleKey?.(key) || handleCommonKey(key)) event.preventDefault();
}

function clearFilter(filter) {
  filter.value = '';
  filter.dispatchEvent(new Event('input'));
}

function handleCommonKey(key) {
  const { table, filter } = screen;
  if (key === 'j' || key === 'ArrowDown') table?.moveSelection(1);
  else if (key === 'k' || key === 'ArrowUp') table?.moveSelection(-1);
  else if (key === 'Enter') return table?.openSelected();
  else if (key === 'Escape') go(parseRoute().name && parseRoute().tab !== 'overview' ? `#/jobs/${app.job}` : '#/jobs');
  else if (key === '/') filter?.focus();
  else if (key === '1' || key === '2') go(key === '1' ? '#/jobs' : '#/cluster');
  else if (TABS[key] !== undefined && app.job) go(`#/jobs/${app.job}${TABS[key]}`);
  else if (key === '?') showHelp();
  else return false;
  return true;
}

async function start() {
  applyTheme();
  applyLanguage();
  try {
    const session = openSession();
    loadScreen(parseRoute());
    app.session = await session;
  } catch (error) {
    return showSignIn(error);
  }
  app.namespace = app.session.allNamespaces ? '*' : app.session.namespace;
  addEventListener('keydown', handleKey);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', mountScreen);
  setInterval(() => scheduleUpdate('tick'), TICK_MS);
  if (!location.hash.startsWith('#/')) history.replaceState(null, '', '#/jobs');
  mountScreen();
  setTimeout(preloadScreens, PRELOAD_MS);
}

addEventListener('hashchange', mountScreen);
start();
