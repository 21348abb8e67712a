//! Messages of the gRPC services that a node has: the kubelet's device plugins (`v1beta1`) and pod resources (`v1`),
//! and the container runtime (`runtime.v1`). Fields that are not used here are left out; a decoder skips them.

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

/// Client of the kubelet's pod resources.
pub mod pod_resources {
    include!(concat!(env!("OUT_DIR"), "/v1.PodResourcesLister.rs"));
}

/// Client of the container runtime.
pub mod runtime {
    include!(concat!(env!("OUT_DIR"), "/runtime.v1.RuntimeService.rs"));
}
