//! Publish address: binds the socket by which a rank serves, and says where all ranks of a run serve. Never serves.

use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

use super::publish_arguments::PublishArguments;
use super::train::RankEngine;
use crate::error::Error;
use zero_core::device::Device;
use zero_plan::Plan;
use zero_publish::{bind, secret};

/// What a rank needs before it can serve.
pub struct Bound {
    /// The socket.
    pub listener: TcpListener,
    /// Its address.
    pub address: SocketAddr,
    /// What readers must know.
    pub token: Option<String>,
    /// A secret: that of rank 0 is the run's.
    pub secret: [u8; 32],
}

impl Bound {
    /// That of a rank of a plan.
    ///
    /// # Errors
    /// Z0338.
    pub fn new(arguments: &PublishArguments, at: &str, plan: &Plan, rank: usize) -> Result<Self, Error> {
        Self::try_new(arguments, at, plan, rank).map_err(|what| Error::Publish { at: at.to_owned(), what })
    }

    fn try_new(arguments: &PublishArguments, at: &str, plan: &Plan, rank: usize) -> Result<Self, String> {
        let (first, _) = plan.config.sharing(rank);
        let host = if first == 0 { at.to_owned() } else { host_that_reaches(at)? };
        let listener = bind(&host, rank - first).map_err(said)?;
        let address = listener.local_addr().map_err(said)?;
        let file = arguments.publish_token.as_deref().map(fs::read_to_string).transpose().map_err(said)?;
        let token = file.map(|file| file.lines().next().unwrap_or_default().trim().to_owned());
        Ok(Self { listener, address, token, secret: secret().map_err(said)? })
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}

/// The address of this host's interface that reaches the host of rank 0, with the same port.
fn host_that_reaches(at: &str) -> Result<String, String> {
    let first = at.to_socket_addrs().map_err(said)?.next().ok_or_else(|| format!("{at} has no address"))?;
    if first.ip().is_loopback() || first.ip().is_unspecified() {
        return Err(
            "ranks on other hosts need the address by which they and readers reach the host of rank 0".to_owned()
        );
    }
    let any: IpAddr = if first.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Sends nothing: the system only chooses the interface.
    let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(first).map(|()| socket));
    let own = socket.and_then(|socket| socket.local_addr()).map_err(said)?;
    Ok(SocketAddr::new(own.ip(), first.port()).to_string())
}

/// Where the ranks of a run serve, and the secret that they share.
pub struct Addresses {
    of_ranks: Vec<SocketAddr>,
    /// That of the run.
    pub secret: [u8; 32],
}

impl Addresses {
    /// Those of all ranks. Every rank must call it.
    ///
    /// # Errors
    /// That another rank has ended.
    pub fn gather<D: Device>(engine: &mut RankEngine<D>, own: &Bound) -> Result<Self, Error> {
        let octets = match own.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let secret = gathered(engine, own.secret.map(f64::from))?.swap_remove(0).map(|byte| byte as u8);
        let ports = gathered(engine, [f64::from(own.address.port())])?;
        let ips = gathered(engine, octets.map(f64::from))?;
        let of_rank = |(ip, [port]): ([f64; 16], [f64; 1])| {
            let ip = Ipv6Addr::from(ip.map(|octet| octet as u8));
            SocketAddr::new(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4), port as u16)
        };
        Ok(Self { of_ranks: ips.into_iter().zip(ports).map(of_rank).collect(), secret })
    }

    /// The URL of rank 0, for a person.
    pub fn shown(&self) -> String {
        format!("http://{}", self.of_ranks[0])
    }

    /// The URL by which a rank reaches rank 0.
    pub fn first(&self) -> String {
        let mut first = self.of_ranks[0];
        if first.ip().is_unspecified() {
            // Only ranks of its own host are served there, because others would need another address.
            first.set_ip(if first.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        format!("http://{first}")
    }

    /// For each rank, its port and, unless it is on the host of rank 0, its URL: readers have that host already, by whichever name
    /// they reach it.
    pub fn for_readers(&self, plan: &Plan) -> Vec<(Option<String>, u16)> {
        let (_, end) = plan.config.sharing(0);
        let of_rank = |(rank, at): (usize, &SocketAddr)| ((rank >= end).then(|| format!("http://{at}")), at.port());
        self.of_ranks.iter().enumerate().map(of_rank).collect()
    }
}

/// Equally many numbers of each rank, in the order of ranks: one at a time, because an exchange of a small model has room for few.
fn gathered<const N: usize, D: Device>(engine: &mut RankEngine<D>, own: [f64; N]) -> Result<Vec<[f64; N]>, Error> {
    let mut all = vec![[0.0; N]; engine.plan().config.mesh.ranks()];
    for (index, number) in own.into_iter().enumerate() {
        let of_ranks = engine.gather_numbers(&[number])?;
        all.iter_mut().zip(of_ranks).for_each(|(all, &number)| all[index] = number);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_other_hosts_need_an_address_that_they_reach() {
        for at in ["127.0.0.1:7000", "0.0.0.0:7000", "[::1]:7000"] {
            assert!(host_that_reaches(at).is_err_and(|why| why.contains("reach the host of rank 0")), "{at}");
        }
        assert!(host_that_reaches("nowhere").is_err());
    }

    #[test]
    fn readers_get_ports_and_urls() {
        let addresses = |of_ranks: &[&str]| Addresses {
            of_ranks: of_ranks.iter().map(|at| at.parse().expect("an address")).collect(),
            secret: [0; 32],
        };
        let own = addresses(&["0.0.0.0:7000", "0.0.0.0:7001"]);
        assert_eq!((own.shown(), own.first()), ("http://0.0.0.0:7000".to_owned(), "http://127.0.0.1:7000".to_owned()));
        assert_eq!(addresses(&["[::]:7000"]).first(), "http://[::1]:7000");
    }
}
