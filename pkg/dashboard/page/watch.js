// The live state. One event stream keeps `state` up to date; a new stream always begins with complete state.

import { getJson } from './api.js';

const RETRY_MS = 3000;
const CLOSE_HIDDEN_MS = 60000;
const CHECK_SLEEP_MS = 5000;
const MIN_SLEEP_MS = 30000;

/** `job` is undefined until the server has sent it, and null if it does not exist. */
export const state = { jobs: new Map(), job: undefined, replicas: new Map(), problem: null, connected: true, jobsKnown: false };

const handlers = {
  jobs(data) {
    applyChanges(state.jobs, data, (row) => row.key);
    state.jobsKnown = true;
  },
  job(data) {
    state.job = data.job;
  },
  replicas(data) {
    applyChanges(state.replicas, data, (row) => row.name);
  },
  problem(data) {
    state.problem = data;
  },
};

function applyChanges(rows, { reset, changed = [], removed = [] }, keyOf) {
  if (reset) rows.clear();
  for (const key of removed) rows.delete(key);
  for (const row of changed) rows.set(keyOf(row), row);
}

export class Watch {
  /** `onChange` gets the name of the event, `onUnauthorized` is called when the session has ended. */
  constructor(onChange, onUnauthorized) {
    Object.assign(this, { onChange, onUnauthorized, target: '', namespace: '', source: null, timer: 0, hiddenTimer: 0 });
    document.addEventListener('visibilitychange', () => this.followVisibility());
    this.reconnectAfterSleep();
  }

  /** Opens the stream of a namespace and a job; keeps the present stream if it is that one. */
  open(namespace, job) {
    const query = new URLSearchParams({ namespace });
    if (job) query.set('job', job);
    const target = `/api/watch?${query}`;
    if (target === this.target) return;
    if (namespace !== this.namespace) {
      state.jobs.clear();
      state.jobsKnown = false;
    }
    state.job = undefined;
    state.replicas.clear();
    Object.assign(this, { target, namespace });
    this.connect();
  }

  connect() {
    this.disconnect();
    const source = new EventSource(this.target);
    this.source = source;
    source.onopen = () => this.setConnected(true);
    source.onerror = () => this.handleError(source);
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        handle(JSON.parse(event.data));
        this.onChange(name);
      });
    }
  }

  disconnect() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  setConnected(connected) {
    if (state.connected === connected) return;
    state.connected = connected;
    this.onChange('connection');
  }

  /** The browser retries after a broken connection, but not after a refusal. */
  handleError(source) {
    if (source !== this.source) return;
    this.setConnected(false);
    if (source.readyState === EventSource.CLOSED) this.timer = setTimeout(() => this.retry(), RETRY_MS);
  }

  async retry() {
    try {
      await getJson('/api/session');
    } catch (error) {
      if (error.status === 401) return this.onUnauthorized();
    }
    this.connect();
  }

  /** After sleep, the connections of the server to the cluster may be dead for minutes without an error. */
  reconnectAfterSleep() {
    let last = Date.now();
    setInterval(() => {
      const slept = Date.now() - last > MIN_SLEEP_MS;
      last = Date.now();
      if (slept && this.source) this.connect();
    }, CHECK_SLEEP_MS);
  }

  /** A tab that stays hidden gives its connection back: browsers allow six to one host. */
  followVisibility() {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) this.hiddenTimer = setTimeout(() => this.disconnect(), CLOSE_HIDDEN_MS);
    else if (!this.source && this.target) this.connect();
  }
}
