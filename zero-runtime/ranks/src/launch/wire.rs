//! Wire: the few messages that ranks of one host exchange, and the sockets that carry them, one message in a packet.
//! Never decides anything.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown,
};

/// First bytes of a hello: the name of the protocol and its version.
const MAGIC: [u8; 8] = *b"zero\0\0\0\x01";
const REASON_BYTES_MAX: usize = 4096;
const MESSAGE_BYTES_MAX: usize = REASON_BYTES_MAX + 64;

/// The first message of a rank to rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub rank: u64,
    pub world: u64,
    pub plan_hash: u64,
    pub segment_bytes: u64,
}

/// An error that a rank has found by itself, and because of which it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub rank: u64,
    /// The exit code that the rank ends with.
    pub code: u8,
    /// Its text for a person.
    pub error: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WireMessage {
    Hello(Hello),
    /// The sender has failed, and leaves it to the receiver to print why.
    Failed(Finding),
    /// The sender still waits for other ranks, and has printed for which.
    Waiting,
    /// All have arrived. Carries the shared memory.
    Go,
    /// Memory of a rank's device, with its descriptor.
    Memory,
    /// The run does not start, for this reason.
    Refused(String),
    /// The sender ends in order.
    Finished,
    /// The run ends with an error that has been printed, and with this exit code.
    Told(u8),
    /// Another rank is gone.
    Lost {
        rank: u64,
        pid: u32,
    },
}

impl WireMessage {
    fn encode(&self) -> Vec<u8> {
        match self {
            WireMessage::Hello(hello) => {
                let fields = [hello.rank, hello.world, hello.plan_hash, hello.segment_bytes];
                [b"H".as_slice(), &MAGIC, &fields.map(u64::to_le_bytes).concat()].concat()
            }
            WireMessage::Failed(finding) => {
                [b"F".as_slice(), &finding.rank.to_le_bytes(), &[finding.code], cut(&finding.error)].concat()
            }
            WireMessage::Waiting => b"W".to_vec(),
            WireMessage::Go => b"G".to_vec(),
            WireMessage::Memory => b"M".to_vec(),
            WireMessage::Refused(reason) => [b"R", cut(reason)].concat(),
            WireMessage::Told(code) => vec![b'T', *code],
            WireMessage::Finished => b"B".to_vec(),
            WireMessage::Lost { rank, pid } => [b"L".as_slice(), &rank.to_le_bytes(), &pid.to_le_bytes()].concat(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (tag, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let message = match tag {
            b'H' if take::<8>(rest)? == MAGIC => WireMessage::Hello(Hello {
                rank: u64::from_le_bytes(take(rest)?),
                world: u64::from_le_bytes(take(rest)?),
                plan_hash: u64::from_le_bytes(take(rest)?),
                segment_bytes: u64::from_le_bytes(take(rest)?),
            }),
            b'F' => {
                let (rank, [code]) = (u64::from_le_bytes(take(rest)?), take(rest)?);
                WireMessage::Failed(Finding { rank, code, error: take_text(rest) })
            }
            b'W' => WireMessage::Waiting,
            b'G' => WireMessage::Go,
            b'M' => WireMessage::Memory,
            b'R' => WireMessage::Refused(take_text(rest)),
            b'T' => WireMessage::Told(u8::from_le_bytes(take(rest)?)),
            b'B' => WireMessage::Finished,
            b'L' => {
                let rank = u64::from_le_bytes(take(rest)?);
                WireMessage::Lost { rank, pid: u32::from_le_bytes(take(rest)?) }
            }
            _ => return None,
        };
        rest.is_empty().then_some(message)
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk()?;
    *bytes = tail;
    Some(*head)
}

fn take_text(bytes: &mut &[u8]) -> String {
    String::from_utf8_lossy(std::mem::take(bytes)).into_owned()
}

/// The part of a text that fits into a message.
fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(REASON_BYTES_MAX)]
}

/// A connection to another rank.
#[derive(Debug)]
pub(super) struct Peer {
    pub rank: usize,
    pub pid: u32,
    pub socket: OwnedFd,
}

impl Peer {
    pub fn send(&self, message: &WireMessage) -> io::Result<()> {
        send(&self.socket, message, &[])
    }

    pub fn send_with(&self, message: &WireMessage, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        send(&self.socket, message, &[descriptor])
    }

    /// Ends both directions. What was sent still arrives, and every wait on this socket, here or there, ends.
    pub fn hang_up(&self) {
        // Fails only if the peer has hung up already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }
}

pub(super) fn send(socket: &OwnedFd, message: &WireMessage, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(fits, "a message carries one descriptor at most");
    }
    let bytes = message.encode();
    // A peer that is gone is an error to return, not a SIGPIPE.
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message, with the descriptor that was sent with it. None if the peer has closed.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<(WireMessage, Option<OwnedFd>)>> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            // A peer that closes before it has read everything resets the connection. Linux reports that once, and only
            // then delivers what the peer had sent before: that it has finished.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
    };
    if length == 0 {
        return Ok(None);
    }
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match WireMessage::decode(&bytes[..length]) {
        Some(message) => Ok(Some((message, descriptor))),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "not a message of zero's ranks")),
    }
}

/// Sleeps until some sockets have something to read, and returns their indices; none if the deadline passes first.
pub(super) fn wait<'a>(
    sockets: impl Iterator<Item = &'a OwnedFd>,
    deadline: Option<Instant>,
) -> io::Result<Vec<usize>> {
    let mut polled: Vec<PollFd<'_>> =
        sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)).collect();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let ready = polled.iter().enumerate().filter(|(_, socket)| !socket.revents().is_empty());
    Ok(ready.map(|(index, _)| index).collect())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let hello = Hello { rank: 3, world: 4, plan_hash: u64::MAX, segment_bytes: 1 << 40 };
        for message in [
            WireMessage::Hello(hello),
            WireMessage::Failed(Finding { rank: 2, code: 76, error: "no data".to_owned() }),
            WireMessage::Waiting,
            WireMessage::Go,
            WireMessage::Memory,
            WireMessage::Refused("rank 2 has another plan".to_owned()),
            WireMessage::Told(76),
            WireMessage::Finished,
            WireMessage::Lost { rank: 2, pid: 77 },
        ] {
            assert_eq!(WireMessage::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn other_packets_are_not_messages() {
        let hello = WireMessage::Hello(Hello { rank: 0, world: 1, plan_hash: 2, segment_bytes: 3 }).encode();
        let mut other_version = hello.clone();
        other_version[8] = 2;
        let longer = [hello.as_slice(), b"x"].concat();
        for bytes in [&[][..], b"?", &hello[..20], &longer, &other_version] {
            assert_eq!(WireMessage::decode(bytes), None);
        }
    }

    /// Every message with each byte changed to each value, cut off at each place, and with each byte after it.
    #[test]
    fn changed_packets_are_other_messages_or_none() {
        let hello = Hello { rank: 3, world: 4, plan_hash: u64::MAX, segment_bytes: 1 << 40 };
        for message in [
            WireMessage::Hello(hello),
            WireMessage::Failed(Finding { rank: 2, code: 76, error: "é".to_owned() }),
            WireMessage::Waiting,
            WireMessage::Refused("é".to_owned()),
            WireMessage::Told(76),
            WireMessage::Lost { rank: 2, pid: 77 },
        ] {
            let sent = message.encode();
            for (at, value) in (0..=sent.len()).flat_map(|at| (0..=u8::MAX).map(move |value| (at, value))) {
                let end = sent.len().min(at + 1);
                for packet in
                    [&sent[..at], &[&sent[..at], &[value]].concat(), &[&sent[..at], &[value], &sent[end..]].concat()]
                {
                    let Some(heard) = WireMessage::decode(packet) else { continue };
                    assert_eq!(WireMessage::decode(&heard.encode()), Some(heard), "{packet:?}");
                }
            }
        }
    }

    #[test]
    fn an_orderly_end_outlives_a_close_with_mail_unread() {
        let flags = SocketFlags::CLOEXEC;
        let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send(&near, &WireMessage::Go, &[]).unwrap();
        send(&far, &WireMessage::Finished, &[]).unwrap();
        drop(far);
        assert_eq!(receive(&near).unwrap().map(|(message, _)| message), Some(WireMessage::Finished));
        assert!(receive(&near).unwrap().is_none());
    }

    #[test]
    fn a_received_descriptor_is_not_passed_on_to_programs_that_are_started() {
        let flags = SocketFlags::CLOEXEC;
        let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        send(&near, &WireMessage::Go, &[near.as_fd()]).unwrap();
        let (message, descriptor) = receive(&far).unwrap().unwrap();
        assert_eq!(message, WireMessage::Go);
        let flags = rustix::io::fcntl_getfd(descriptor.unwrap()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let encoded = WireMessage::Refused("é".repeat(4000)).encode();
        assert!(encoded.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(WireMessage::decode(&encoded), Some(WireMessage::Refused("é".repeat(REASON_BYTES_MAX / 2))));
    }
}
