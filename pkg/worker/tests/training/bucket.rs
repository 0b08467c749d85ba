//! A training whose pods share a bucket of a local S3 server.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use di_python_tests::installed;
use di_worker_lib::{
    Error, Result, chain,
    checkpoint::run::FINAL_MODEL,
    storage::{Storage, blocking::run_blocking},
};
use serde::Deserialize;

use crate::{
    mock_replicas::MockReplicas,
    resume::{finish, finish_in_two},
};

const REQUIREMENTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/training/bucket/requirements.txt"
);
const SERVE: &str = include_str!("bucket/serve.py");

/// The address of the server and the credentials of its bucket `training`.
#[derive(Clone, Deserialize)]
struct Server {
    endpoint: String,
    key: String,
    secret: String,
}

impl Server {
    /// The server of all tests. It ends when its input closes with this process.
    fn get() -> &'static Self {
        static SERVER: OnceLock<(Server, Child)> = OnceLock::new();
        let (server, _) = SERVER.get_or_init(|| {
            let python = installed("moto", REQUIREMENTS).join("bin/python");
            let mut child = Command::new(python)
                .args(["-c", SERVE])
                // Ignore AWS variables of this machine.
                .env_clear()
                .env("PATH", std::env::var_os("PATH").unwrap_or_default())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            output.read_line(&mut line).unwrap();
            (serde_json::from_str(&line).unwrap(), child)
        });
        server
    }

    fn variables(&self) -> [(&'static str, &str); 5] {
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", &self.key),
            ("AWS_SECRET_ACCESS_KEY", &self.secret),
            ("AWS_REGION", "us-east-1"),
        ]
    }
}

/// Opens a storage with some variables replaced.
async fn open(
    location: &'static str,
    instead: &'static [(&'static str, &'static str)],
) -> Result<Storage> {
    let open = move || {
        let right = Server::get().variables();
        let variables = right.iter().chain(instead);
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Storage::open_with(Path::new(location), variables)
    };
    run_blocking(open).await
}

#[tokio::test]
async fn bucket_training_resumes_and_ends_like_folder_training() {
    let in_folder = finish(&MockReplicas::start().await).await;
    let storage = open("s3://training/some/where", &[]).await.unwrap();
    assert!(!format!("{storage:?}").contains(&Server::get().secret));
    let in_bucket = finish_in_two(&MockReplicas::start_on(storage.clone()).await).await;
    assert_eq!(in_bucket, in_folder);
    let models = move || {
        let runs = storage.list_entries(&storage.root().join("rl/pole"))?;
        let runs = runs.iter().filter(|folder| !folder.ends_with("summaries"));
        let models = runs.map(|run| storage.read(&run.join(FINAL_MODEL)));
        models.collect::<Result<Vec<_>>>()
    };
    assert_eq!(
        run_blocking(models).await.unwrap().len(),
        2,
        "one model per start"
    );
}

#[tokio::test]
async fn bucket_errors_give_advice() {
    let server = Server::get();
    for (location, instead, words) in [
        ("s3://elsewhere/a", &[][..], "there is no such bucket"),
        (
            "s3://training/a",
            &[("AWS_SECRET_ACCESS_KEY", "hidden")],
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        ),
        (
            "s3://training/a",
            &[("AWS_ACCESS_KEY_ID", "AKIANOBODY")],
            "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
        ),
        (
            "s3://training/a",
            &[("AWS_ALLOW_HTTP", "false")],
            "AWS_ALLOW_HTTP=true",
        ),
    ] {
        let error = open(location, instead).await.unwrap_err();
        let message = chain(&error);
        assert_eq!(error.exit_code(), 2, "{message}");
        assert!(
            matches!(error, Error::BucketNotWritable { .. }),
            "{message}"
        );
        assert!(
            message.contains(&format!("--storage {location}")) && message.contains(words),
            "{message}"
        );
        assert!(
            !message.contains("hidden") && !message.contains(&server.secret),
            "{message}"
        );
    }
}
