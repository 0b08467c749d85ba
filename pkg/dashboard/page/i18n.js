// The languages of the page and its formats. Texts of Kubernetes and of the orchestrator stay as the server sends them.

const LANGUAGE = 'di-language';

const texts = {
  // frame
  jobs: ['Jobs', '作业'],
  cluster: ['Cluster', '集群'],
  overview: ['Overview', '概览'],
  training: ['Training', '训练'],
  logs: ['Logs', '日志'],
  help: ['Keyboard help', '键盘帮助'],
  language: ['Switch to Chinese', '切换到英文'],
  'theme.auto': ['Theme: as the system', '主题：跟随系统'],
  'theme.light': ['Theme: light', '主题：浅色'],
  'theme.dark': ['Theme: dark', '主题：深色'],
  readOnly: ['read only', '只读'],
  live: ['Live', '实时'],
  disconnected: ['No connection to kubectl di dashboard. Is it still running? The page shows the last known state.',
    '无法连接到 kubectl di dashboard。它还在运行吗？页面显示的是最后已知的状态。'],
  outdated: ['May be out of date: {why}', '可能已过时：{why}'],
  signIn: ['Open the address that kubectl di dashboard printed', '请打开 kubectl di dashboard 输出的地址'],
  signInWhy: ['The address contains a token that gives access. This page has no token, or its token is no longer valid.',
    '该地址包含访问令牌。此页面没有令牌，或令牌已失效。'],
  close: ['Close', '关闭'],
  cancel: ['Cancel', '取消'],
  copy: ['Copy', '复制'],
  loading: ['Loading…', '加载中…'],
  filter: ['Filter', '筛选'],
  of: ['{shown} of {total}', '{shown} / {total}'],
  ago: ['{age} ago', '{age}前'],
  // keys
  'key.move': ['next and previous row', '下一行、上一行'],
  'key.open': ['open the selected row', '打开选中的行'],
  'key.back': ['back, close', '返回、关闭'],
  'key.filter': ['filter or search', '筛选或搜索'],
  'key.screens': ['jobs, cluster', '作业、集群'],
  'key.tabs': ['overview, training, logs of a job', '作业的概览、训练、日志'],
  'key.follow': ['follow the logs', '跟随日志'],
  'key.help': ['this help', '显示此帮助'],
  // jobs
  job: ['Job', '作业'],
  namespace: ['Namespace', '命名空间'],
  allNamespaces: ['all namespaces', '所有命名空间'],
  phase: ['Phase', '阶段'],
  collectors: ['Collectors', '采集器'],
  learners: ['Learners', '学习器'],
  restarts: ['Restarts', '重启次数'],
  queue: ['Queue', '队列'],
  position: ['no. {n} in {queue}', '{queue} 第 {n} 位'],
  replicasWait: ['{n} replicas wait for quota', '{n} 个副本等待配额'],
  age: ['Age', '时长'],
  ended: ['Ended', '结束'],
  noJobs: ['No DIJobs here. Create one: kubectl di create NAME --image=IMAGE', '这里没有 DIJob。创建一个：kubectl di create NAME --image=IMAGE'],
  noMatch: ['Nothing matches the filter.', '没有匹配的项。'],
  'phase.Created': ['Created', '已创建'],
  'phase.Running': ['Running', '运行中'],
  'phase.Succeeded': ['Succeeded', '已成功'],
  'phase.Failed': ['Failed', '已失败'],
  'phase.Unknown': ['Unknown', '未知'],
  'phase.Suspended': ['Suspended', '已挂起'],
  'phase.Queued': ['Queued', '排队中'],
  'phase.Deleting': ['Deleting', '正在删除'],
  'phase.New': ['New', '新建'],
  // job
  noJob: ['This job does not exist, or it was deleted.', '该作业不存在，或已被删除。'],
  replicas: ['Replicas', '副本'],
  declared: ['declared: {n}', '声明：{n}'],
  gang: ['Gang', '成组调度'],
  'gang.placed': ['placed ({n} pods)', '已调度（{n} 个 Pod）'],
  'gang.waits': ['waits for {n} pods', '等待 {n} 个 Pod'],
  timeline: ['Timeline', '时间线'],
  failures: ['Failures', '失败记录'],
  noFailures: ['No failures recorded.', '没有失败记录。'],
  events: ['Events', '事件'],
  noEvents: ['No events. Kubernetes keeps them for an hour.', '没有事件。Kubernetes 只保留一小时。'],
  conditions: ['Conditions', '状况'],
  podsHidden: ['Pods are not shown: {why}', '无法显示 Pod：{why}'],
  role: ['Role', '角色'],
  name: ['Name', '名称'],
  unit: ['Unit', '单元'],
  origin: ['Origin', '来源'],
  state: ['State', '计划状态'],
  status: ['Status', '状态'],
  node: ['Node', '节点'],
  exit: ['Last exit', '上次退出'],
  exitCode: ['exit code {code}', '退出码 {code}'],
  address: ['Address', '地址'],
  planned: ['Planned', '计划时间'],
  created: ['Created', '创建时间'],
  replaces: ['Replaces', '替换了'],
  containers: ['Containers ready', '就绪容器'],
  tail: ['Last log lines', '最后几行日志'],
  noTail: ['No log lines were stored.', '没有保存日志。'],
  times: ['{n} times', '{n} 次'],
  rule: ['rule {rule}: {action}', '规则 {rule}：{action}'],
  openLogs: ['Logs of this replica', '此副本的日志'],
  noReplicas: ['No pods and no planned replicas.', '没有 Pod，也没有计划的副本。'],
  'role.coordinator': ['Coordinator', '协调器'],
  'role.collector': ['Collector', '采集器'],
  'role.learner': ['Learner', '学习器'],
  'role.aggregator': ['Aggregator', '聚合器'],
  'role.ddp-learner': ['DDP learner', 'ddp 学习器'],
  origins: ['declared: in the manifest or by scaling the job; requested: by the coordinator while it runs', '声明：在清单中，或通过伸缩作业；请求：由运行中的协调器提出'],
  'origin.Declared': ['declared', '声明'],
  'origin.Requested': ['requested', '请求'],
  'state.Wanted': ['wanted', '期望'],
  'state.Removing': ['removing', '正在移除'],
  'state.Replaced': ['replaced', '已被替换'],
  'kind.created': ['created', '创建'],
  'kind.condition': ['condition', '状况'],
  'kind.failure': ['failure', '失败'],
  'kind.replacement': ['replacement', '替换'],
  'kind.eviction': ['eviction', '驱逐'],
  'kind.restart': ['restart', '重启'],
  type: ['Type', '类型'],
  reason: ['Reason', '原因'],
  message: ['Message', '消息'],
  object: ['Object', '对象'],
  count: ['Count', '次数'],
  last: ['Last', '最近'],
  // actions
  'action.suspend': ['Suspend', '挂起'],
  'action.resume': ['Resume', '恢复'],
  'action.restart': ['Restart', '重启'],
  'action.delete': ['Delete', '删除'],
  'action.addCollector': ['Add a collector', '添加一个采集器'],
  'action.removeCollector': ['Remove a collector', '移除一个采集器'],
  'action.addLearner': ['Add a learner', '添加一个学习器'],
  'action.removeLearner': ['Remove a learner', '移除一个学习器'],
  'ask.suspend': ['Suspend {job}? All its pods are deleted, and the plan is kept.', '挂起 {job}？将删除其所有 Pod，计划保留。'],
  'ask.restart': ['Restart the coordinator of {job}? Its pod is replaced.', '重启 {job} 的协调器？其 Pod 将被替换。'],
  'ask.delete': ['Delete {job}? This also deletes its pods and cannot be undone.', '删除 {job}？其 Pod 也会被删除，且无法撤销。'],
  commandHint: ['Each button shows the command that does the same.', '每个按钮都显示等效的命令。'],
  'disabled.readOnly': ['the dashboard is read only', '此面板为只读'],
  'disabled.forbidden': ['you have no permission', '您没有权限'],
  'disabled.ended': ['the job has ended', '作业已结束'],
  'disabled.deleting': ['the job is being deleted', '作业正在被删除'],
  'disabled.suspended': ['the job is suspended', '作业已挂起'],
  'disabled.notSuspended': ['the job is not suspended', '作业未挂起'],
  'disabled.none': ['the job declares none', '作业没有声明'],
  'disabled.unknown': ['your permissions are not known yet', '尚不知道您的权限'],
  'error.badRequest': ['The request is invalid', '请求无效'],
  'error.unauthorized': ['Not signed in', '未登录'],
  'error.forbiddenHost': ['This host name is not allowed', '不允许此主机名'],
  'error.forbiddenOrigin': ['This origin is not allowed', '不允许此来源'],
  'error.forbidden': ['Not permitted', '没有权限'],
  'error.notFound': ['Not found', '未找到'],
  'error.methodNotAllowed': ['The request is invalid', '请求无效'],
  'error.conflict': ['Not possible now', '目前无法执行'],
  'error.tooLarge': ['The request is too large', '请求过大'],
  'error.unsupportedType': ['The request is invalid', '请求无效'],
  'error.invalid': ['The job would become invalid', '作业将变为无效'],
  'error.tooManyRequests': ['Too many open pages; close one', '打开的页面过多，请关闭一个'],
  'error.internal': ['Error of the dashboard', '面板内部错误'],
  'error.cluster': ['The cluster returned an error', '集群返回错误'],
  'error.timeout': ['No answer in time', '响应超时'],
  'error.unreachable': ['No connection to kubectl di dashboard', '无法连接到 kubectl di dashboard'],
  // training
  'stat.mean_return': ['Mean return', '平均回报'],
  'stat.evaluation': ['Evaluation', '评估'],
  'stat.frames_per_second': ['Frames per second', '每秒帧数'],
  'stat.policy_loss': ['Policy loss', '策略损失'],
  'stat.value_loss': ['Value loss', '价值损失'],
  'stat.entropy': ['Entropy', '熵'],
  'stat.episodes': ['Episodes', '回合数'],
  'stat.model_version': ['Model version', '模型版本'],
  'stat.iteration': ['Iteration', '迭代'],
  'stat.frames': ['Frames', '帧数'],
  band: ['mean, lowest and highest of {n}', '{n} 个的平均、最低和最高'],
  noStats: ['No numbers yet. Each number in the stats of GET /lifecycle of a worker gets a curve here.', '还没有数据。worker 的 GET /lifecycle 返回的 stats 中，每个数值在这里显示为一条曲线。'],
  sampled: ['{called} of {total} replicas are asked every two seconds. The curves begin when this screen is opened.',
    '每两秒询问 {total} 个副本中的 {called} 个。曲线从打开此页面时开始。'],
  polls: ['Polls', '轮询'],
  samples: ['Samples', '样本'],
  batches: ['Batches', '批次'],
  // logs
  'logs.from': ['From', '来源'],
  'logs.all': ['All pods', '所有 Pod'],
  'logs.tail': ['Lines of each pod', '每个 Pod 的行数'],
  'logs.previous': ['Before the last restart', '上次重启之前'],
  'logs.follow': ['Follow', '跟随'],
  'logs.search': ['Search', '搜索'],
  'logs.stored': ['Stored tails ({n})', '已保存的日志（{n}）'],
  'logs.end': ['End of the logs.', '日志结束。'],
  'logs.broken': ['The connection was interrupted; the last lines of each pod follow again.', '连接已中断；以下重新显示每个 Pod 的最后几行。'],
  'logs.empty': ['No lines yet.', '还没有日志。'],
  // cluster
  nodes: ['Nodes', '节点'],
  noNodes: ['No nodes.', '没有节点。'],
  ready: ['ready', '就绪'],
  notReady: ['not ready', '未就绪'],
  cordoned: ['cordoned', '已禁止调度'],
  used: ['{used} of {gpus} GPUs used', '已用 {used} / {gpus} 个 GPU'],
  users: ['Who uses the GPUs', 'GPU 使用者'],
  user: ['User', '使用者'],
  noUsers: ['No GPU is used.', '没有 GPU 被使用。'],
  otherPods: ['pods of no DIJob', '非 DIJob 的 Pod'],
  pods: ['Pods', 'Pod'],
  nodePodsHidden: ['Only the pods of your namespace are counted: {why}', '只统计您的命名空间中的 Pod：{why}'],
  doctor: ['Doctor', '诊断'],
  runDoctor: ['Run checks', '运行检查'],
  doctorWhy: ['Checks the orchestrator, its webhooks and your permissions, as kubectl di doctor does.', '与 kubectl di doctor 相同：检查编排器、webhook 和您的权限。'],
  'finding.ok': ['ok', '正常'],
  'finding.unknown': ['unknown', '未知'],
  'finding.warning': ['warning', '警告'],
  'finding.error': ['error', '错误'],
};

let language = localStorage.getItem(LANGUAGE) ?? (navigator.language.startsWith('zh') ? 'zh' : 'en');

export function applyLanguage() {
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
}

export function switchLanguage() {
  language = language === 'zh' ? 'en' : 'zh';
  localStorage.setItem(LANGUAGE, language);
  applyLanguage();
}

export function isChinese() {
  return language === 'zh';
}

export function t(key, values = {}) {
  return translate(key, key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
}

/** The text of a key that may be unknown, since the server may send a new code. */
export function translate(key, otherwise) {
  return texts[key]?.[language === 'zh' ? 1 : 0] ?? otherwise;
}

export function formatError(error) {
  const text = translate(`error.${error.code}`, error.code ?? '');
  return error.code === 'unreachable' ? text : `${text}: ${error.message}`;
}

/** As kubectl: 45s, 12m, 5h, 3d. */
export function formatAge(time, end = Date.now()) {
  if (!time) return '';
  const seconds = Math.max(0, Math.round((new Date(end) - new Date(time)) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/** The local time, with the date unless that is today. */
export function formatTime(time) {
  if (!time) return '';
  const date = new Date(time);
  const clock = { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false };
  const day = date.toDateString() === new Date().toDateString() ? {} : { month: 'short', day: 'numeric' };
  return date.toLocaleString(language === 'zh' ? 'zh-CN' : 'en-GB', { ...day, ...clock });
}

export function formatNumber(value) {
  if (value === null || value === undefined) return '';
  const size = Math.abs(value);
  const notation = size >= 1e6 ? 'compact' : size && size < 1e-4 ? 'scientific' : 'standard';
  return value.toLocaleString(language === 'zh' ? 'zh-CN' : 'en', { notation, maximumSignificantDigits: size >= 1e4 ? 7 : 4 });
}
