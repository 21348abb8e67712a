//! Vendor, family and model of the processor.

use std::fmt;
use std::fs;

/// Designer of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Processors by Intel, `GenuineIntel`.
    Intel,
    /// Processors by AMD, `AuthenticAMD`.
    Amd,
    /// Processors with an unmodified design by Arm, implementer 0x41.
    Arm,
}

/// Identity of a processor. On Arm the model is the part number, and the family is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Designer of the processor.
    pub vendor: Vendor,
    /// Family of the processor; 0 on Arm.
    pub family: u32,
    /// Model of the processor; on Arm its part number.
    pub model: u32,
}

impl Processor {
    /// Returns the processor of this machine; `None` if its vendor is not in [`Vendor`], or /proc/cpuinfo lacks its
    /// numbers.
    pub fn find() -> Option<Self> {
        Self::parse_cpuinfo(&fs::read_to_string("/proc/cpuinfo").ok()?)
    }

    /// Parses the first processor in the text of /proc/cpuinfo; `None` if its vendor is not in [`Vendor`], or a number
    /// is missing.
    pub fn parse_cpuinfo(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
        };
        let number = |name: &str| field(name)?.parse().ok();
        match field("vendor_id") {
            Some("GenuineIntel") => {
                Some(Self { vendor: Vendor::Intel, family: number("cpu family")?, model: number("model")? })
            }
            Some("AuthenticAMD") => {
                Some(Self { vendor: Vendor::Amd, family: number("cpu family")?, model: number("model")? })
            }
            Some(_) => None,
            None => Self::of_arm(field("CPU implementer")?, field("CPU part")?),
        }
    }

    fn of_arm(implementer: &str, part: &str) -> Option<Self> {
        const ARM: &str = "0x41";
        let model = u32::from_str_radix(part.strip_prefix("0x")?, 16).ok()?;
        (implementer == ARM).then_some(Self { vendor: Vendor::Arm, family: 0, model })
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vendor, family, model } = self;
        match vendor {
            Vendor::Intel => write!(f, "Intel family {family} model {model:#x}"),
            Vendor::Amd => write!(f, "AMD family {family:#x} model {model:#x}"),
            Vendor::Arm => write!(f, "Arm part {model:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of /proc/cpuinfo of a machine, shortened.
    const SKYLAKE_SP: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
                              model name\t: Intel(R) Xeon(R) Gold 6126 CPU @ 2.60GHz\nstepping\t: 4\n";
    const GENOA: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\
                         model name\t: AMD EPYC\nstepping\t: 1\n";
    const GRAVITON3: &str = "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n\
                             CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n";
    const APPLE: &str = "processor\t: 0\nCPU implementer\t: 0x61\nCPU architecture: 8\nCPU part\t: 0x022\n";

    #[test]
    fn processor_is_identified_from_cpuinfo() {
        let found = |text| Processor::parse_cpuinfo(text);
        assert_eq!(found(SKYLAKE_SP), Some(Processor { vendor: Vendor::Intel, family: 6, model: 0x55 }));
        assert_eq!(found(GENOA), Some(Processor { vendor: Vendor::Amd, family: 0x19, model: 0x11 }));
        assert_eq!(found(GRAVITON3), Some(Processor { vendor: Vendor::Arm, family: 0, model: 0xd40 }));
        assert_eq!(found(GRAVITON3).unwrap().to_string(), "Arm part 0xd40");
        assert_eq!(found(APPLE), None);
        assert_eq!(found("vendor_id\t: HygonGenuine\ncpu family\t: 24\nmodel\t: 1\n"), None);
        assert_eq!(found(""), None);
    }
}
