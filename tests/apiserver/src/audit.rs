use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ObjectMeta};
use serde::Deserialize;

use crate::{dry_run, eventually};

/// One write from the API server's audit log.
#[derive(Clone, Debug)]
pub struct Write {
    /// User agent of the client.
    pub agent: String,
    /// Verb, as in RBAC.
    pub verb: String,
    /// Resource with its subresource, as in RBAC.
    pub resource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// HTTP status code of the response.
    pub code: u16,
    /// When the API server received the request; the times compare as text.
    pub received: String,
    /// When the API server responded.
    pub answered: String,
}

impl Write {
    /// Whether the write has this verb and resource.
    pub fn is_call(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }

    /// Whether the write is of this job or of an object with the job's name as prefix.
    pub fn concerns_job(&self, job: &str) -> bool {
        let rest = self.name.strip_prefix(job);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(default)]
    user_agent: String,
    verb: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: String,
    stage_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

fn parse(line: &str) -> Option<Write> {
    let line: Line = serde_json::from_str(line).ok()?;
    let object = line.object_ref?;
    let resource = match object.subresource.as_str() {
        "" => object.resource,
        sub => format!("{}/{sub}", object.resource),
    };
    Some(Write {
        agent: line.user_agent,
        verb: line.verb,
        resource,
        namespace: object.namespace,
        name: object.name,
        code: line.response_status.map_or(0, |status| status.code),
        received: line.request_received_timestamp,
        answered: line.stage_timestamp,
    })
}

fn read_from(log: &Path, at: u64) -> io::Result<String> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(at))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the writes in a namespace from this offset of the log on, in the order of their
/// responses.
pub(crate) async fn writes(log: &Path, at: u64, client: &Client, namespace: &str) -> Vec<Write> {
    static MARKS: AtomicU32 = AtomicU32::new(0);
    // The log may lag, so create a marker and read until it appears.
    let mark = format!("mark-{}", MARKS.fetch_add(1, Relaxed));
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some(mark.clone()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    api.create(&dry_run(), &object).await.unwrap();
    eventually("the audit log shows a mark", async || {
        let text = read_from(log, at).unwrap();
        let all: Vec<_> = text
            .lines()
            .filter(|line| line.contains(namespace))
            .filter_map(parse)
            .filter(|write| write.namespace == namespace)
            .collect();
        match all.iter().position(|write| write.name == mark) {
            Some(at) => Ok(all[..at].to_vec()),
            None => Err(format!("{} writes", all.len())),
        }
    })
    .await
}
