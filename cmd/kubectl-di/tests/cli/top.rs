//! `top` with and without a terminal.

use di_apiserver_tests::{Job, Kubelet, Space};
use kube::api::DeleteParams;

use crate::plugin::{Plugin, mask_ages};

/// Creates two running jobs without a kubelet, so that their pods do not change.
async fn settled() -> Plugin {
    let space = Space::new().await;
    let kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    for (name, collectors) in [("cartpole", 2), ("pong", 0)] {
        space.create(&Job::new(name, collectors)).await;
        space.until_settled(name).await;
    }
    manager.stop().await;
    drop(kubelet);
    Plugin::at(space)
}

#[tokio::test]
async fn top_without_a_terminal_prints_a_table() {
    let plugin = settled().await;
    let result = plugin.run(&["top"]).await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&result)));
}

#[tokio::test]
async fn top_shows_changes_of_jobs_and_replicas() {
    let plugin = settled().await;
    let terminal = plugin.terminal(100, 8, &["top"]);
    let screen = terminal
        .until("two jobs", |screen| {
            screen.contains("pong") && screen.contains("q quit")
        })
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&screen)));

    terminal.press(&["Enter"]);
    let screen = terminal
        .until("replicas", |screen| {
            screen.contains("esc back") && screen.contains("q quit")
        })
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&screen)));
    terminal.resize(40, 4).await;
    terminal
        .until("it fits", |screen| {
            let lines: Vec<_> = screen.lines().collect();
            lines.len() == 4
                && lines.iter().all(|line| line.chars().count() <= 40)
                && lines[2].starts_with("cartpole-coordinator")
                && lines[3].starts_with("esc back")
        })
        .await;
    terminal.resize(100, 12).await;
    terminal.press(&["Escape"]);
    terminal
        .until("the jobs", |screen| screen.contains("enter replicas"))
        .await;

    plugin.space.create(&Job::new("acrobot", 0)).await;
    terminal
        .until("a new job", |screen| screen.contains("acrobot"))
        .await;
    let jobs = plugin.space.jobs();
    jobs.delete("pong", &DeleteParams::default()).await.unwrap();
    terminal
        .until("one less", |screen| !screen.contains("pong"))
        .await;

    terminal.press(&["/", "acro", "Enter"]);
    terminal
        .until("one that matches", |screen| !screen.contains("cartpole"))
        .await;
    terminal.press(&["?"]);
    terminal
        .until("help", |screen| screen.contains("this help"))
        .await;
    terminal.press(&["x", "q"]);
    terminal.until_ended(0).await;
}

#[tokio::test]
async fn top_restores_the_terminal() {
    let plugin = settled().await;
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let terminal = plugin.terminal(100, 30, &["top"]);
        terminal
            .until("jobs", |screen| screen.contains("pong"))
            .await;
        terminal.signal(signal);
        terminal.until_ended(code).await;
    }
    let terminal = plugin.terminal(100, 30, &["top"]);
    terminal
        .until("jobs", |screen| screen.contains("pong"))
        .await;
    terminal.press(&["C-c"]);
    terminal.until_ended(0).await;
    drop(terminal);
    // Errors are printed on the normal screen.
    let terminal = plugin.terminal(100, 30, &["top", "--as=nobody"]);
    terminal.until_ended(1).await;
    assert!(
        terminal.screen().contains("Error from server (Forbidden)"),
        "{}",
        terminal.screen()
    );
}
