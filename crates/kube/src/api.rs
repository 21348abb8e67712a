//! Messages of the gRPC services that a node has: the kubelet's device plugins (`v1beta1`), its registry of plugins, its
//! drivers of dynamic resources (`dra.v1`) and its pod resources (`v1`), and the container runtime (`runtime.v1`). Fields that are not used here are left out; a decoder skips them.

use std::collections::HashMap;

use prost::Message;

/// Message without content.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

/// Announcement of a device plugin to the kubelet.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterRequest {
    /// Version of the API.
    #[prost(string, tag = "1")]
    pub version: String,
    /// Name of the plugin's socket in the kubelet's folder.
    #[prost(string, tag = "2")]
    pub endpoint: String,
    /// Name of the extended resource.
    #[prost(string, tag = "3")]
    pub resource_name: String,
    /// Options of the plugin.
    #[prost(message, optional, tag = "4")]
    pub options: Option<DevicePluginOptions>,
}

/// Options of a device plugin.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct DevicePluginOptions {
    /// Whether the kubelet calls `PreStartContainer` before each start of a container.
    #[prost(bool, tag = "1")]
    pub pre_start_required: bool,
    /// Whether the plugin has `GetPreferredAllocation`.
    #[prost(bool, tag = "2")]
    pub get_preferred_allocation_available: bool,
}

/// All devices of a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct ListAndWatchResponse {
    /// Devices, in any order.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
}

/// Device of a plugin.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// Id of the device.
    #[prost(string, tag = "1")]
    pub id: String,
    /// `Healthy` or `Unhealthy`.
    #[prost(string, tag = "2")]
    pub health: String,
}

/// Question which devices are best for containers.
#[derive(Clone, PartialEq, Message)]
pub struct PreferredAllocationRequest {
    /// Question of each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<ContainerPreferredAllocationRequest>,
}

/// Question which devices are best for one container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerPreferredAllocationRequest {
    /// Ids of the devices that are free.
    #[prost(string, repeated, tag = "1")]
    pub available: Vec<String>,
    /// Ids of devices that have to be in the answer.
    #[prost(string, repeated, tag = "2")]
    pub must_include: Vec<String>,
    /// Number of devices in the answer.
    #[prost(int32, tag = "3")]
    pub size: i32,
}

/// Devices that are best for containers.
#[derive(Clone, PartialEq, Message)]
pub struct PreferredAllocationResponse {
    /// Answer for each container.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<DeviceIds>,
}

/// Ids of devices of one container.
#[derive(Clone, PartialEq, Message)]
pub struct DeviceIds {
    /// Ids of the devices.
    #[prost(string, repeated, tag = "1")]
    pub ids: Vec<String>,
}

/// Devices that the kubelet gives to the containers of a pod.
#[derive(Clone, PartialEq, Message)]
pub struct AllocateRequest {
    /// Devices of each container.
    #[prost(message, repeated, tag = "1")]
    pub container_requests: Vec<DeviceIds>,
}

/// Changes to containers that get devices.
#[derive(Clone, PartialEq, Message)]
pub struct AllocateResponse {
    /// Changes to each container.
    #[prost(message, repeated, tag = "1")]
    pub container_responses: Vec<ContainerAllocateResponse>,
}

/// Changes to one container that gets devices.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerAllocateResponse {
    /// Environment variables of the container.
    #[prost(map = "string, string", tag = "1")]
    pub envs: HashMap<String, String>,
}

/// Announcement that a container with these devices starts.
#[derive(Clone, PartialEq, Message)]
pub struct PreStartContainerRequest {
    /// Ids of the devices.
    #[prost(string, repeated, tag = "1")]
    pub ids: Vec<String>,
}

/// Question for the resources of all pods of the node.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ListPodResourcesRequest {}

/// Resources of all pods of the node.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodResourcesResponse {
    /// Resources of each pod.
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<PodResources>,
}

/// Resources of one pod.
#[derive(Clone, PartialEq, Message)]
pub struct PodResources {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Namespace of the pod.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Resources of each container.
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

/// Resources of one container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerResources {
    /// Devices by resource.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Devices by claim.
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// Devices of one resource that a container has.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerDevices {
    /// Name of the resource.
    #[prost(string, tag = "1")]
    pub resource_name: String,
    /// Ids of the devices.
    #[prost(string, repeated, tag = "2")]
    pub ids: Vec<String>,
}

/// Devices of one claim that a container has.
#[derive(Clone, PartialEq, Message)]
pub struct DynamicResource {
    /// Name of the claim.
    #[prost(string, tag = "2")]
    pub claim_name: String,
    /// Namespace of the claim.
    #[prost(string, tag = "3")]
    pub claim_namespace: String,
    /// Devices that are prepared.
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// Device of a claim.
#[derive(Clone, PartialEq, Message)]
pub struct ClaimResource {
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub driver_name: String,
    /// Name of the device in its pool.
    #[prost(string, tag = "4")]
    pub device_name: String,
}

/// Announcement of a plugin to the kubelet that has found its socket.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// Kind of the plugin.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Name of the plugin.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Socket of the plugin's services; empty if it is the socket that the kubelet has found.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Services that the plugin has.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// Outcome of a plugin's registration.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    /// Whether the kubelet uses the plugin.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Reason why not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// Claims that the kubelet wants to be prepared, or needs no more.
#[derive(Clone, PartialEq, Message)]
pub struct ClaimsRequest {
    /// Claims, in any order.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// Name of a ResourceClaim.
#[derive(Clone, PartialEq, Message)]
pub struct Claim {
    /// Namespace of the claim.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// UID of the claim.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Name of the claim.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// Outcome for each claim that the kubelet wants to be prepared.
#[derive(Clone, PartialEq, Message)]
pub struct PrepareResponse {
    /// Outcomes by UID.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, PreparedClaim>,
}

/// Outcome for one claim that the kubelet wants to be prepared.
#[derive(Clone, PartialEq, Message)]
pub struct PreparedClaim {
    /// Devices of the claim.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<PreparedDevice>,
    /// Reason why the claim cannot be prepared; empty if it is.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// Device of a prepared claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PreparedDevice {
    /// Requests of the claim for which the device was allocated.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// Pool of the device.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Name of the device in its pool.
    #[prost(string, tag = "3")]
    pub device_name: String,
}

/// Outcome for each claim that the kubelet needs no more.
#[derive(Clone, PartialEq, Message)]
pub struct UnprepareResponse {
    /// Outcomes by UID.
    #[prost(map = "string, message", tag = "1")]
    pub claims: HashMap<String, Empty>,
}

/// Question for the sandboxes of pods.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxRequest {
    /// Sandboxes that are wanted; `None` for all.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<PodSandboxFilter>,
}

/// Choice of sandboxes.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxFilter {
    /// State of the sandboxes; `None` for any.
    #[prost(message, optional, tag = "2")]
    pub state: Option<PodSandboxState>,
}

/// State of a sandbox.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct PodSandboxState {
    /// 0 while the sandbox is ready, else 1.
    #[prost(int32, tag = "1")]
    pub state: i32,
}

/// Sandboxes of pods.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxResponse {
    /// Sandboxes, in any order.
    #[prost(message, repeated, tag = "1")]
    pub sandboxes: Vec<PodSandbox>,
}

/// Sandbox of one pod.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    /// Name and namespace of the pod.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Annotations that the pod had when the sandbox was made.
    #[prost(map = "string, string", tag = "6")]
    pub annotations: HashMap<String, String>,
}

/// Name and namespace of a pod.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMetadata {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Namespace of the pod.
    #[prost(string, tag = "3")]
    pub namespace: String,
}

/// Client of the kubelet's register of plugins.
pub mod registration {
    include!(concat!(env!("OUT_DIR"), "/v1beta1.Registration.rs"));
}

/// Server of a device plugin.
pub mod device_plugin {
    include!(concat!(env!("OUT_DIR"), "/v1beta1.DevicePlugin.rs"));
}

/// Server that tells a kubelet about a plugin.
pub mod plugin_registration {
    include!(concat!(env!("OUT_DIR"), "/pluginregistration.Registration.rs"));
}

/// Server of a driver of dynamic resources.
pub mod dra {
    include!(concat!(env!("OUT_DIR"), "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin.rs"));
}

/// Client of the kubelet's pod resources.
pub mod pod_resources {
    include!(concat!(env!("OUT_DIR"), "/v1.PodResourcesLister.rs"));
}

/// Client of the container runtime.
pub mod runtime {
    include!(concat!(env!("OUT_DIR"), "/runtime.v1.RuntimeService.rs"));
}
