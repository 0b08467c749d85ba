use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use object_store::memory::InMemory;

use super::{objects::Objects, *};
use crate::Error;

/// A folder and a prefix of a bucket.
fn test_storages(folder: &Path) -> [Storage; 2] {
    let root = PathBuf::from("s3://bucket/some/where");
    let objects = Objects::new(root.clone(), "some/where".into(), Arc::new(InMemory::new()));
    let files = Arc::new(objects.unwrap());
    [Storage::open(folder).unwrap(), Storage { root, files }]
}

fn open_error(location: &str, variables: &[(&str, &str)]) -> String {
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let error = Storage::open_with(Path::new(location), variables).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    crate::chain(&error)
}

#[test]
fn files_are_written_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for storage in test_storages(&folder.path().join("made/here")) {
        let run = storage.root().join("a/b");
        storage.create_folder(&run).unwrap();
        let file = run.join("model-1.safetensors");
        assert_eq!(storage.write(&file, b"one").unwrap(), 3);
        storage.write(&file, b"three").unwrap();
        assert_eq!(storage.read(&file).unwrap(), b"three");
        storage.write_durably(&file, b"again").unwrap();
        assert_eq!(storage.read(&file).unwrap(), b"again");
        assert_eq!(
            storage.list_entries(&run).unwrap(),
            [&*file],
            "temporary files"
        );
        let last = run.join("model-final.safetensors");
        storage.rename(&file, &last).unwrap();
        assert_eq!(storage.list_entries(&run).unwrap(), [&*last]);
        storage.remove(&file).unwrap();
        storage.remove_folder(&run).unwrap();
        storage.remove_folder(&run).unwrap();
        assert!(storage.list_entries(&run).is_err() && storage.read(&last).is_err());
    }
}

#[test]
fn listing_and_removal_stay_inside_folder() {
    let folder = tempfile::tempdir().unwrap();
    for storage in test_storages(folder.path()) {
        let (run, other) = (storage.root().join("run"), storage.root().join("run-2"));
        let frames = run.join("frames-0");
        for (folder, name) in [(&run, "a"), (&frames, "b"), (&other, "c")] {
            storage.create_folder(folder).unwrap();
            storage.write(&folder.join(name), b"").unwrap();
        }
        let mut listed = storage.list_entries(&run).unwrap();
        listed.sort();
        assert_eq!(listed, [run.join("a"), frames.clone()]);
        storage.remove_folder(&run).unwrap();
        assert!(storage.read(&frames.join("b")).is_err());
        assert_eq!(storage.list_entries(&other).unwrap(), [other.join("c")]);
    }
}

#[test]
fn write_to_removed_folder_fails() {
    let folder = tempfile::tempdir().unwrap();
    for storage in test_storages(folder.path()) {
        let gone = storage.root().join("gone");
        storage.create_folder(&gone).unwrap();
        storage.remove_folder(&gone).unwrap();
        let path = gone.join("frames.safetensors");
        for refused in [storage.write(&path, b""), storage.write_durably(&path, b"")] {
            assert!(matches!(refused, Err(Error::File { .. })));
        }
        assert!(storage.read(&path).is_err());
    }
}

#[test]
fn paths_outside_storage_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, b"x").unwrap();
    for storage in test_storages(&folder.path().join("storage")) {
        let root = storage.root().to_owned();
        let outside = [
            "/etc/passwd".into(),
            "s3://bucket/some".into(),
            "s3://other/some/where/file".into(),
            secret.clone(),
            root.join("../secret"),
            "relative".into(),
            root,
        ];
        for path in &outside {
            assert_rejected(&storage, path);
        }
    }
    assert_eq!(fs::read(secret).unwrap(), b"x");
}

#[test]
fn links_out_of_folder_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(&folder.path().join("storage")).unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, b"x").unwrap();
    let link = storage.root().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    assert_rejected(&storage, &link.join("secret"));
    assert_eq!(fs::read(secret).unwrap(), b"x");
}

fn assert_rejected(storage: &Storage, path: &Path) {
    let done = [
        storage.read(path).err(),
        storage.write(path, b"").err(),
        storage.remove(path).err(),
        storage.remove_folder(path).err(),
        storage.rename(path, path).err(),
    ];
    for refused in done {
        assert!(
            matches!(refused, Some(Error::OutsideStorage { .. })),
            "{path:?}: {refused:?}"
        );
    }
}

#[test]
fn unwritable_folder_error_gives_advice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let message = open_error(file.join("storage").to_str().unwrap(), &[]);
    assert!(
        message.contains("file/storage")
            && message.contains("spec.volumes")
            && message.contains("--storage")
    );
}

#[test]
fn invalid_bucket_url_error_hides_secrets() {
    for (location, reason) in [
        ("gs://bucket/a", "gs:// is not supported"),
        ("https://s3.example/bucket", "https:// is not supported"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3:/bucket/prefix", "two slashes"),
        ("s3:bucket/prefix", "two slashes"),
        ("s3://buck`et/a", "a bucket's name"),
        ("s3://buck%20et/a", "a bucket's name"),
        ("s3://me:hidden@bucket/a", "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket/a?secret=hidden", "AWS_ENDPOINT_URL"),
        ("s3://bucket:9000/a", "AWS_ENDPOINT_URL"),
        ("s3://bucket/a/../b//c", "empty path"),
    ] {
        let message = open_error(location, &[]);
        assert!(
            message.contains(reason)
                && message.contains("--storage")
                && message.contains("s3://BUCKET/PREFIX")
                && !message.contains("hidden"),
            "{location}: {message}"
        );
    }
}

#[test]
fn invalid_variables_error_hides_values() {
    let key = ("AWS_ACCESS_KEY_ID", "me");
    let lines = ("AWS_SECRET_ACCESS_KEY", "hid\nden\n");
    let message = open_error("s3://bucket", &[key, lines]);
    assert!(
        message.contains(lines.0) && !message.contains("den"),
        "{message}"
    );
    let endpoint = ("AWS_ENDPOINT_URL", "https://me:hidden@s3.example");
    let message = open_error("s3://bucket", &[endpoint]);
    assert!(
        message.contains(endpoint.0) && !message.contains("hidden"),
        "{message}"
    );
    // object_store panics with an endpoint that is not a URL.
    for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"] {
        for value in ["hidden", "hidden:9000"] {
            let message = open_error("s3://bucket/a", &[key, (lines.0, "hidden"), (name, value)]);
            let words = format!("{name} must be a URL such as http://minio.rl:9000");
            assert!(
                message.contains(&words) && !message.contains("hidden"),
                "{message}"
            );
        }
    }
    // An empty variable counts as unset.
    let message = open_error("s3://bucket", &[key, (lines.0, "")]);
    assert!(message.contains("AWS_SECRET_ACCESS_KEY"), "{message}");
    let bad = ("AWS_ALLOW_HTTP", "perhaps");
    let message = open_error("s3://bucket", &[key, (lines.0, "hidden"), bad]);
    assert!(
        message.contains("AWS_ALLOW_HTTP") && !message.contains("hidden"),
        "{message}"
    );
}

/// Starts a server that always sends this response; returns its URL.
fn start_server(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            // The request ends with the body of the write check.
            while !request.ends_with(b"di-worker") {
                match stream.read(&mut part) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => request.extend_from_slice(&part[..read]),
                }
            }
            // The client may have disconnected.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    endpoint
}

#[test]
fn wrong_region_error_names_variable() {
    let close = "Connection: close\r\nContent-Length:";
    let malformed = "<Error><Code>AuthorizationHeaderMalformed</Code></Error>";
    for answer in [
        format!("301 Moved Permanently\r\n{close} 0\r\n\r\n"),
        format!("307 Temporary Redirect\r\n{close} 0\r\n\r\n"),
        format!(
            "400 Bad Request\r\n{close} {}\r\n\r\n{malformed}",
            malformed.len()
        ),
    ] {
        let endpoint = start_server(format!("HTTP/1.1 {answer}"));
        let variables = [
            ("AWS_ENDPOINT_URL", &*endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "me"),
            ("AWS_SECRET_ACCESS_KEY", "hidden"),
        ];
        let message = open_error("s3://bucket/a", &variables);
        assert!(
            message.contains("another region; set AWS_REGION") && !message.contains("hidden"),
            "{message}"
        );
    }
}
