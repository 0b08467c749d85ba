//! Compares the exposed metrics with the alerts, the dashboard and the documentation.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::Duration,
};

use axum::{
    body::{Body, to_bytes},
    extract::Request,
};
use clap::Parser;
use di_api::{ConditionType, Reason};
use di_cache::{JobCache, PodCache};
use di_replicas::{Endpoint, Settings, State};
use kube::{Client, Config, runtime::reflector};
use prometheus_client::encoding::text::encode;
use regex::Regex;
use serde_json::Value;

use crate::manager::Manager;

const OPERATIONS: &str = include_str!("../../../docs/operations.md");
const RULES: &str = include_str!("../../../manifests/monitoring/rules.yaml");
const MONITOR: &str = include_str!("../../../manifests/monitoring/pod-monitor.yaml");
const DASHBOARD: &str = include_str!("../../../manifests/monitoring/dashboard.json");
const DEPLOYMENTS: [&str; 2] = [
    include_str!("../../../manifests/default/deployment.yaml"),
    include_str!("../../../manifests/webhook-only/deployment.yaml"),
];
/// Labels that Prometheus adds, and the label of histogram buckets.
const ADDED_LABELS: [&str; 2] = ["pod", "le"];

type Labels = BTreeMap<String, String>;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    manager: Manager,
}

/// The exposed metrics by name, with the labels of their series.
#[derive(Default)]
struct Exposed(BTreeMap<String, Vec<Labels>>);

impl Exposed {
    /// Reads the metrics of all programs.
    async fn of_all_programs() -> Self {
        let mut all = Self::default();
        all.add_text(&manager_metrics(&[]));
        all.add_text(&endpoint_metrics().await);
        all
    }

    fn add_text(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            self.0
                .entry(name.to_owned())
                .or_default()
                .push(parse_labels(labels));
        }
    }

    /// The metric names with their label names. The series of a histogram are one metric.
    fn label_names(&self) -> BTreeMap<String, BTreeSet<&str>> {
        let mut metrics = BTreeMap::<String, BTreeSet<&str>>::new();
        for (name, series) in &self.0 {
            let histogram = ["_bucket", "_count", "_sum"]
                .iter()
                .filter_map(|part| name.strip_suffix(part))
                .find(|base| self.0.contains_key(&format!("{base}_bucket")));
            let labels = series.iter().flat_map(Labels::keys).map(String::as_str);
            metrics
                .entry(histogram.unwrap_or(name).to_owned())
                .or_default()
                .extend(labels.filter(|label| *label != "le"));
        }
        metrics
    }

    /// Fails unless each metric, label and label value in a query is exposed.
    fn check_query(&self, query: &str) {
        let selector = Regex::new(r"\b(di_[a-z0-9_]+)(?:\{([^}]*)\})?").unwrap();
        let matcher = Regex::new(r#"([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)""#).unwrap();
        let mut labels = BTreeSet::from(ADDED_LABELS);
        for found in selector.captures_iter(query) {
            let series = self.0.get(&found[1]);
            let series = series.unwrap_or_else(|| panic!("{} of {query}", &found[1]));
            labels.extend(series.iter().flat_map(Labels::keys).map(String::as_str));
            let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
            let matchers: Vec<_> = matcher
                .captures_iter(matchers)
                .map(|found| found.extract::<3>().1)
                .collect();
            // Negative matchers may exclude all current series.
            let positive = matchers.iter().filter(|[_, op, _]| !op.starts_with('!'));
            let is_selected = |s: &&Labels| positive.clone().all(|matcher| is_match(s, matcher));
            assert!(
                series.iter().any(|s| is_selected(&s)),
                "no series for {query}"
            );
            for [label, _, values] in &matchers {
                for value in values.split('|') {
                    let is_code = *label == "code" && value.parse::<u16>().is_ok();
                    let known = series.iter().any(|s| is_match(s, &[label, "=~", value]));
                    assert!(known || is_code, "no {label} {value:?}: {query}");
                }
            }
        }
        let by = Regex::new(r"\bby \(([^)]*)\)").unwrap();
        for found in by.captures_iter(query) {
            for label in found[1].split(", ") {
                assert!(labels.contains(label), "no label {label}: {query}");
            }
        }
    }

    /// Fails unless the placeholders of a text are labels of the result of a query.
    fn check_text(&self, text: &str, query: &str) {
        let placeholder = Regex::new(r"\{\{ ?(?:\$labels\.)?([a-z_]+)[^}]*\}\}").unwrap();
        let metric = Regex::new(r"\bdi_[a-z0-9_]+").unwrap();
        let by = Regex::new(r"\bby \(([^)]*)\)").unwrap();
        let labels: BTreeSet<&str> = match by.captures(query) {
            Some(found) => found.get(1).unwrap().as_str().split(", ").collect(),
            None => metric
                .find_iter(query)
                .filter_map(|metric| self.0.get(metric.as_str()))
                .flatten()
                .flat_map(Labels::keys)
                .map(String::as_str)
                .chain(ADDED_LABELS)
                .collect(),
        };
        for found in placeholder.captures_iter(text) {
            assert!(labels.contains(&found[1]), "{text} of {query}");
        }
    }
}

/// Parses labels such as `a="x",b="y"}`.
fn parse_labels(text: &str) -> Labels {
    let label = Regex::new(r#"([a-z_]+)="([^"]*)""#).unwrap();
    let all = label.captures_iter(text);
    all.map(|found| (found[1].to_owned(), found[2].to_owned()))
        .collect()
}

fn is_match(series: &Labels, [label, op, value]: &[&str; 3]) -> bool {
    let actual = series.get(*label).map_or("", String::as_str);
    match *op {
        "=" => actual == *value,
        _ => Regex::new(&format!("^(?:{value})$"))
            .unwrap()
            .is_match(actual),
    }
}

/// The metrics of the manager with these flags.
fn manager_metrics(flags: &[&str]) -> String {
    let args = ["manager"].iter().chain(flags);
    let (registry, _, _) = Program::parse_from(args).manager.register_metrics();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

/// The metrics of the endpoint after some requests. Its caches are empty, so it returns some 503s.
async fn endpoint_metrics() -> String {
    let (jobs, _writer) = reflector::store();
    let unreachable = Config::new("http://127.0.0.1:9".parse().unwrap());
    let state = State::new(
        Client::try_from(unreachable).unwrap(),
        Arc::new(JobCache::new(jobs)),
        Arc::new(PodCache::default()),
        Settings {
            allow_anonymous: true,
            sync_wait: Duration::ZERO,
            ..Settings::default()
        },
        di_replicas::Metrics::default(),
    );
    let endpoint = Endpoint::new(state);
    let mut text = String::new();
    for path in [
        "/v1alpha2/replicas?namespace=rl&coordinator=a-coordinator",
        "/metrics",
        "/metrics",
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let body = endpoint.handle_request(request).await.into_body();
        text = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
    }
    text
}

fn rules() -> Value {
    let rules: Value = serde_saphyr::from_str(RULES).unwrap();
    rules["spec"].clone()
}

fn alerts() -> Vec<Value> {
    let groups = rules()["groups"].as_array().unwrap().clone();
    let all = groups.iter().filter_map(|group| group["rules"].as_array());
    all.flatten().cloned().collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// The text below a heading, up to the next heading of its level or above.
fn section(heading: &str) -> &'static str {
    let level = heading.split_once(' ').unwrap().0.len();
    let (_, below) = OPERATIONS
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no {heading}"));
    let next = Regex::new(&format!(r"(?m)^#{{1,{level}}} ")).unwrap();
    next.find(below)
        .map_or(below, |next| &below[..next.start()])
}

/// The rows of a table that start with code.
fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| line.starts_with("| `"))
}

/// The code in the first cells of a table.
fn first_cells(table: &str) -> impl Iterator<Item = &str> {
    rows(table).flat_map(|row| {
        let cell = row.trim_start_matches("| ").split(" | ").next().unwrap();
        cell.split('`').skip(1).step_by(2)
    })
}

#[tokio::test]
async fn alerts_and_dashboard_query_exposed_metrics() {
    let exposed = Exposed::of_all_programs().await;
    for alert in alerts() {
        let query = text(&alert["expr"]);
        exposed.check_query(query);
        for (_, annotation) in alert["annotations"].as_object().unwrap() {
            exposed.check_text(text(annotation), query);
        }
    }
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        for target in panel["targets"].as_array().unwrap() {
            let query = text(&target["expr"]);
            exposed.check_query(query);
            exposed.check_text(text(&target["legendFormat"]), query);
        }
    }
}

#[tokio::test]
async fn metrics_are_documented_with_their_labels() {
    let exposed = Exposed::of_all_programs().await;
    let metrics = exposed.label_names();
    let mut documented = BTreeMap::new();
    for cell in first_cells(section("### Metrics")).filter(|cell| cell.starts_with("di_")) {
        let (name, labels) = cell.split_once('{').unwrap_or((cell, "}"));
        let labels = labels.trim_end_matches('}').split(',');
        let labels: BTreeSet<_> = labels.filter(|label| !label.is_empty()).collect();
        documented.insert(name.to_owned(), labels);
    }
    assert_eq!(metrics, documented, "left: exposed; right: documented");
    for found in Regex::new(r"\bdi_[a-z0-9_]+")
        .unwrap()
        .find_iter(OPERATIONS)
    {
        assert!(metrics.contains_key(found.as_str()), "{}", found.as_str());
    }
}

#[test]
fn webhook_only_manager_has_no_leader_metric() {
    assert!(manager_metrics(&[]).contains("\ndi_controller_leader 0\n"));
    assert!(!manager_metrics(&["--webhook-only"]).contains("di_controller"));
}

#[test]
fn alerts_link_to_their_runbooks() {
    let sections = section("### Alerts");
    let documented: BTreeSet<_> = sections
        .lines()
        .filter_map(|line| line.strip_prefix("#### "))
        .collect();
    let alerts = alerts();
    let names: BTreeSet<_> = alerts.iter().map(|alert| text(&alert["alert"])).collect();
    assert_eq!(names, documented);
    for alert in &alerts {
        let name = text(&alert["alert"]);
        let runbook = format!(
            "{}/blob/main/docs/operations.md#{}",
            env!("CARGO_PKG_REPOSITORY"),
            name.to_lowercase()
        );
        assert_eq!(alert["annotations"]["runbook_url"], runbook);
        assert!(!text(&alert["annotations"]["summary"]).is_empty());
        let severity = text(&alert["labels"]["severity"]);
        assert!(["critical", "warning"].contains(&severity), "{severity}");
        let says_critical = section(&format!("#### {name}")).contains("\nCritical. ");
        assert_eq!(says_critical, severity == "critical", "{name}");
    }
}

#[test]
fn conditions_and_reasons_are_documented() {
    let (conditions, reasons) = section("## Conditions and events")
        .split_once("\n| Reason |")
        .unwrap();
    let types = ConditionType::ALL.map(ConditionType::as_str);
    assert_eq!(
        first_cells(conditions).collect::<BTreeSet<_>>(),
        types.into()
    );
    let known = Reason::ALL.iter().map(|reason| reason.as_str());
    assert_eq!(
        first_cells(reasons).collect::<BTreeSet<_>>(),
        known.collect()
    );
    for row in rows(conditions).chain(rows(reasons)) {
        let cells = row.trim_start_matches('|').trim_end_matches('|');
        let meaning = cells.split('|').next_back().unwrap();
        assert!(!meaning.trim().is_empty(), "{row}");
    }
}

#[test]
fn documented_sed_command_extracts_the_rules() {
    let monitoring = section("## Monitoring");
    let line = monitoring.lines().find(|line| line.starts_with("sed "));
    let (line, _) = line.unwrap().split_once(" >").unwrap();
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut bash = Command::new("bash");
    let output = bash.args(["-c", line]).current_dir(root).output().unwrap();
    let extracted = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        serde_saphyr::from_str::<Value>(&extracted).unwrap(),
        rules()
    );
}

#[test]
fn scrape_configurations_match_the_container_ports() {
    let (_, scrape) = section("## Monitoring").split_once("```yaml\n").unwrap();
    let scrape: Value = serde_saphyr::from_str(scrape.split_once("```").unwrap().0).unwrap();
    let by_port = &scrape["scrape_configs"][0]["relabel_configs"][0]["regex"];
    let scraped: Vec<_> = text(by_port).split('|').collect();
    let monitor: Value = serde_saphyr::from_str(MONITOR).unwrap();
    let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().unwrap();
    let monitored: Vec<_> = endpoints.iter().map(|e| text(&e["port"])).collect();
    assert_eq!(scraped, monitored);
    for deployment in DEPLOYMENTS {
        let deployment: Value = serde_saphyr::from_str(deployment).unwrap();
        let pod = &deployment["spec"]["template"];
        let match_labels = monitor["spec"]["selector"]["matchLabels"].as_object();
        for (label, value) in match_labels.unwrap() {
            assert_eq!(&pod["metadata"]["labels"][label], value);
        }
        let containers = pod["spec"]["containers"].as_array().unwrap();
        for container in containers {
            let ports = container["ports"].as_array().unwrap();
            let has_port = |port: &&str| ports.iter().any(|p| p["name"] == **port);
            let found = scraped.iter().filter(|port| has_port(port)).count();
            assert_eq!(found, 1, "{}", container["name"]);
        }
    }
}
