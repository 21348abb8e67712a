//! Generates clients and servers of the gRPC services that a node has, without their `.proto` files. Messages are in
//! `src/api.rs`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let clients = [
        service("v1beta1", "Registration", vec![method("register", "Register", "RegisterRequest", "Empty")]),
        service(
            "v1",
            "PodResourcesLister",
            vec![method("list", "List", "ListPodResourcesRequest", "ListPodResourcesResponse")],
        ),
        service(
            "runtime.v1",
            "RuntimeService",
            vec![method("list_pod_sandbox", "ListPodSandbox", "ListPodSandboxRequest", "ListPodSandboxResponse")],
        ),
    ];
    Builder::new().build_server(false).compile(&clients);
    let plugin = service(
        "v1beta1",
        "DevicePlugin",
        vec![
            method("get_device_plugin_options", "GetDevicePluginOptions", "Empty", "DevicePluginOptions"),
            builder("list_and_watch", "ListAndWatch", "Empty", "ListAndWatchResponse").server_streaming().build(),
            method(
                "get_preferred_allocation",
                "GetPreferredAllocation",
                "PreferredAllocationRequest",
                "PreferredAllocationResponse",
            ),
            method("allocate", "Allocate", "AllocateRequest", "AllocateResponse"),
            method("pre_start_container", "PreStartContainer", "PreStartContainerRequest", "Empty"),
        ],
    );
    let registration = service(
        "pluginregistration",
        "Registration",
        vec![
            method("get_info", "GetInfo", "Empty", "PluginInfo"),
            method("notify_registration_status", "NotifyRegistrationStatus", "RegistrationStatus", "Empty"),
        ],
    );
    let driver = service(
        "k8s.io.kubelet.pkg.apis.dra.v1",
        "DRAPlugin",
        vec![
            method("node_prepare_resources", "NodePrepareResources", "ClaimsRequest", "PrepareResponse"),
            method("node_unprepare_resources", "NodeUnprepareResources", "ClaimsRequest", "UnprepareResponse"),
        ],
    );
    Builder::new().build_client(false).compile(&[plugin]);
    // Their clients are for tests.
    Builder::new().compile(&[registration, driver]);
}

fn service(package: &str, name: &str, methods: Vec<Method>) -> Service {
    let service = Service::builder().package(package).name(name);
    methods.into_iter().fold(service, |service, method| service.method(method)).build()
}

fn method(name: &str, route: &str, input: &str, output: &str) -> Method {
    builder(name, route, input, output).build()
}

fn builder(name: &str, route: &str, input: &str, output: &str) -> tonic_build::manual::MethodBuilder {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type(format!("crate::api::{input}"))
        .output_type(format!("crate::api::{output}"))
        .codec_path("tonic_prost::ProstCodec")
}
