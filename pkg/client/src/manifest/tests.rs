use serde_json::json;

use super::*;

fn objects(text: &str) -> Vec<Value> {
    let documents = parse("job.yaml", text).unwrap();
    documents.into_iter().map(|d| d.object).collect()
}

#[test]
fn documents_are_taken_apart_and_empty_ones_left_out() {
    let text = "---\n# a comment\n---\nkind: DIJob\n---\n\n---\nkind: AggregatorConfig\n";
    assert_eq!(
        objects(text),
        [
            json!({"kind": "DIJob"}),
            json!({"kind": "AggregatorConfig"})
        ]
    );
    assert!(objects("").is_empty());
}

#[test]
fn json_may_follow_json() {
    assert_eq!(
        objects("{\"kind\": \"DIJob\"}\n{\"kind\": \"Pod\", \"big\": 9007199254740993}"),
        [
            json!({"kind": "DIJob"}),
            json!({"kind": "Pod", "big": 9_007_199_254_740_993_i64})
        ]
    );
}

#[test]
fn lists_are_taken_apart_and_items_of_others_stay() {
    assert_eq!(
        objects("kind: List\nitems:\n- kind: DIJob\n- kind: DIJobList\n  items: [{kind: DIJob}]"),
        [json!({"kind": "DIJob"}), json!({"kind": "DIJob"})]
    );
    let other = json!({"kind": "ConfigMap", "items": [1]});
    assert_eq!(objects(&other.to_string()), [other]);
}

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    let text = "mode: 0644\nswitch: yes\nquoted: \"0644\"\nbase: &b {a: 1}\nmerged: {<<: *b, c: 2}";
    assert_eq!(
        objects(text),
        [json!({
            "mode": 420, "switch": true, "quoted": "0644",
            "base": {"a": 1}, "merged": {"a": 1, "c": 2},
        })]
    );
}

#[test]
fn what_is_no_object_is_named() {
    assert_eq!(
        parse("job.yaml", "- a\n").unwrap_err().to_string(),
        r#"job.yaml: expected an object, found ["a"]"#
    );
    assert!(
        parse("job.yaml", "a: [\n")
            .unwrap_err()
            .to_string()
            .starts_with("job.yaml: ")
    );
}

#[test]
fn a_directory_stands_for_its_manifests_in_order() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    for (name, text) in [
        ("b.yml", "kind: B"),
        ("a.yaml", "kind: A"),
        ("a/d.yaml", "kind: D"),
        ("c.json", "{\"kind\": \"C\"}"),
        ("README.md", "# no manifest"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let kinds = |recursive: bool| -> Vec<_> {
        let documents = read(dir.path().to_str().unwrap(), recursive).unwrap();
        let kinds = documents.into_iter().map(|d| d.object["kind"].clone());
        kinds.collect()
    };
    assert_eq!(kinds(false), ["A", "B", "C"]);
    assert_eq!(kinds(true), ["D", "A", "B", "C"]);
}

/// Answers each request in turn, and says how many came.
fn serve(answers: &'static [&'static str]) -> (String, std::thread::JoinHandle<usize>) {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/job.yaml", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head = lines.map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            write!(stream, "HTTP/1.1 {answer}").unwrap();
        }
        answers.len()
    });
    (url, server)
}

#[test]
fn an_address_stands_for_what_is_there() {
    let answers = &[
        "503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "302 Found\r\nlocation: /other.yaml\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nkind: A",
    ];
    let (url, server) = serve(answers);
    let documents = read(&url, false).unwrap();
    assert_eq!(documents[0].object, json!({"kind": "A"}));
    assert_eq!(documents[0].origin, url);
    assert_eq!(server.join().unwrap(), 3);

    let (url, server) = serve(&["404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"]);
    let error = read(&url, false).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{url}: unable to read URL, server reported 404 Not Found")
    );
    server.join().unwrap();
}

#[test]
fn what_is_no_yaml_is_told_without_a_second_error() {
    let error = parse("train.yaml", "kind: DIJob\nspec: [").unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("train.yaml: line "), "{said}");
}
