use crate::plugin::Plugin;

#[tokio::test]
async fn jobs_in_all_namespaces_are_selected_by_label() {
    let (here, there) = (Plugin::new().await, Plugin::new().await);
    let label = format!("chosen-in={}", here.space.namespace);
    for plugin in [&here, &there] {
        let labels = format!("--labels={label}");
        let result = plugin.run(&["create", "j", "--image=i", &labels]).await;
        assert_eq!(result.code, Some(0), "{result}");
    }
    for (verb, suspended) in [("suspend", true), ("resume", false)] {
        let result = here.run(&[verb, "-A", "-l", &label]).await;
        assert_eq!(result.code, Some(0), "{verb}: {result}");
        assert_eq!(result.stdout.lines().count(), 2, "{verb}: {result}");
        for plugin in [&here, &there] {
            let job = plugin.space.jobs().get("j").await.unwrap();
            assert_eq!(job.spec.suspend, suspended, "{verb}");
        }
    }
}
