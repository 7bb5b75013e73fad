// softroce's NIC: the queue pairs of one process on UDP sockets and the wall clock.
//
// The owner polls it from one thread: receive, fire_timers, transmit, and sleep until something is due.
// Packets leave at absolute times given by a line rate (native/roce/nic_port.hpp). Addresses, local and
// remote, count from the start of its memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/loss.hpp"
#include "core/time.hpp"
#include "live/queue_pair_numbers.hpp"
#include "live/refused_senders.hpp"
#include "live/sockets/header_socket.hpp"
#include "live/sockets/ip_address.hpp"
#include "live/sockets/udp_socket.hpp"
#include "roce/icrc.hpp"
#include "roce/nic_port.hpp"
#include "roce/queue_pair.hpp"
#include "roce/wire.hpp"

namespace genie::live {

struct NicConfig {
  IpAddress address;
  std::uint16_t port = roce::kUdpPort;
  std::int32_t local_rank =
      0;  // among the ranks that share this address: the high byte of its queue pair numbers
  bool draw_numbers = false;  // queue pair numbers are secrets; otherwise they follow one another
  bool offload = true;        // segmentation and receive offload
  bool see_headers = false;   // check ICRCs with the identifications that came (IPv4): needs CAP_NET_RAW
  std::int64_t rate_bps = 0;  // 0: as fast as it goes
  TimePs debt_limit = 2000 * kPsPerUs;
  std::uint32_t frame_overhead_bytes = 38;
  std::uint8_t traffic_class = 0;  // DSCP in the upper six bits; the ECN bits are the NIC's
  std::uint32_t rkey = 0;
  std::uint32_t fifo_rkey = 0;  // of a FIFO without memory: the owner gets its entries of 64 B; 0: none
  std::uint64_t memory_bytes = 1 << 20;
  std::uint64_t writable_bytes = 1 << 20, readable_bytes = 0;  // by peers that know the rkey, from address 0
  // Of an address that peers write to; the NIC passes the bits above to the owner and ignores them.
  std::uint32_t address_bits = 64;
};

// The other end of a connection.
struct Remote {
  IpAddress address;
  std::uint32_t qpn = 0;
  std::uint32_t first_psn = 0;  // of what it sends to us
  // Of what we send to it: as many as its queue pair sprays over.
  std::vector<std::uint16_t> source_ports = {0};
  std::vector<std::uint16_t> peer_ports = {};  // of what it sends to us, and of nothing else; empty: any
  bool exact_port = false;                     // source_ports even if others have them; or the next free ones
  bool foreign = false;                        // no softroce: its IP identifications are unknown
};

// Where a SEND's payload goes, or what an immediate uses up.
struct Receive {
  std::uint64_t handle = 0, address = 0;
  std::uint32_t size_bytes = 0;
};

struct NicCounters {
  std::uint64_t datagrams_sent = 0, datagrams_received = 0, bytes_sent = 0, bytes_received = 0;
  std::uint64_t send_calls = 0, receive_calls = 0, sleeps = 0;
  std::uint64_t bad_icrc = 0, malformed = 0, strangers = 0, wrong_port = 0, bad_pkey = 0, wrong_rank = 0;
  std::uint64_t injected_losses = 0;
  std::uint64_t identifications_unseen =
      0;                              // ICRC right for one of the 2^16 identifications that it may have had
  std::uint64_t offload_refused = 0;  // 1: the device segments nothing
  TimePs latest_departure = 0;        // worst lateness of a paced packet
};

// The line rate is `factor` times the configured one between two times.
struct RateFault {
  TimePs from = 0, until = kNever;
  double factor = 1.0;
};

// Events that a NIC reports to its owner.
class NicOwner {
 public:
  virtual void sent(std::uint32_t queue_pair, std::uint64_t handle, roce::Status status,
                    std::uint32_t retransmits, TimePs now) = 0;
  // `receive`: the one used up; null where they are not counted.
  virtual void delivered(std::uint32_t queue_pair, const roce::Delivery& delivery, const Receive* receive,
                         TimePs now) = 0;
  // A part of a WRITE or SEND lies in memory at `address`.
  virtual void placed(std::uint32_t, std::uint64_t, std::span<const std::byte>) {}

 protected:
  ~NicOwner() = default;
};

class SoftNic {
 public:
  SoftNic(const NicConfig& config, NicOwner& owner);
  SoftNic(const SoftNic&) = delete;
  SoftNic& operator=(const SoftNic&) = delete;

  // Binds the receiving socket, or takes one that is bound; "" or what went wrong.
  std::string open();
  std::string open_with(int descriptor);

  // A queue pair's index here; the number that peers use is qpn(). Receives are counted where they are
  // posted: with `receives_counted` off there is always one.
  std::uint32_t add_queue_pair(const roce::QueuePairConfig& config, bool receives_counted);
  std::uint32_t qpn(std::uint32_t queue_pair) const { return numbers_.number(queue_pair); }
  std::string connect(std::uint32_t queue_pair, std::uint32_t first_psn, const Remote& remote);
  // Opens the sockets that the queue pair sends from, otherwise done at its first packets.
  std::string open_path(std::uint32_t queue_pair);
  // From now on its peer's packets come from these UDP ports; one that is 0: from any.
  void expect_ports(std::uint32_t queue_pair, const std::vector<std::uint16_t>& ports);
  // "" or why not: a place outside of the memory.
  std::string post(std::uint32_t queue_pair, const roce::SendRequest& request);
  std::string post_receive(std::uint32_t queue_pair, const Receive& receive);

  void receive();
  void fire_timers(TimePs now);
  void transmit(TimePs now);
  TimePs next_due() const;  // kNever when nothing will happen by itself
  bool sending() const { return staged_.has_value() || port_.next_pick() != kNever; }
  // Until then, or until something comes.
  void sleep(TimePs now, TimePs until);

  TimePs now() const;  // picoseconds since this NIC was made
  std::int64_t epoch_ns() const { return epoch_ns_; }
  // When a packet last brought what was expected, or acknowledged what was not.
  TimePs last_progress() const { return last_progress_; }
  std::span<std::byte> memory() { return memory_; }
  const roce::QueuePair& queue_pair(std::uint32_t queue_pair) const {
    return connections_[queue_pair].queue_pair;
  }
  std::size_t queue_pairs() const { return connections_.size(); }
  const Remote& remote(std::uint32_t queue_pair) const { return connections_[queue_pair].remote; }
  std::vector<std::uint16_t> source_ports(std::uint32_t queue_pair) const;
  // The same, or 0 where another may take its place when the socket is opened.
  std::vector<std::uint16_t> certain_ports(std::uint32_t queue_pair) const;

  // A send that the system refuses for good.
  struct SendError {
    std::uint32_t queue_pair = 0;
    std::string text;
  };
  const std::optional<SendError>& error() const { return error_; }
  const std::string& last_refusal() const { return last_refusal_; }
  // The first packet that ended a connection: which one, from where, and of what it was made.
  struct Ended {
    std::uint32_t queue_pair = 0;
    std::string text;
  };
  const std::optional<Ended>& ended() const { return ended_; }
  // Address and port of the packet that is being received; "" while none is.
  std::string sender_of_packet() const;
  const RefusedSenders& refused_senders() const { return refused_senders_; }
  const NicCounters& counters() const { return counters_; }
  roce::QueuePairCounters totals() const;

  void add_rate_fault(const RateFault& fault) { rate_faults_.push_back(fault); }
  void clear_rate_faults() { rate_faults_.clear(); }
  // `loss` is shared by the queue pairs of one path and outlives the NIC.
  void set_path_faults(std::uint32_t queue_pair, LossPlan* loss, TimePs delay);

  struct TraceEntry {
    TimePs time;
    std::uint32_t queue_pair;
    roce::Packet packet;
    bool lost;
  };
  void keep_trace(bool keep) { keep_trace_ = keep; }
  const std::vector<TraceEntry>& trace() const { return trace_; }

 private:
  static constexpr std::uint32_t kNoSender = ~std::uint32_t{0};
  struct ReceiveQueue {
    std::deque<Receive> posted;
    Receive current;  // of the message that is arriving
  };
  struct Out {  // a source port
    std::uint32_t sender = kNoSender;
    roce::IcrcFlow flow;
  };
  struct In {  // a source port of the peer's
    std::uint16_t port = 0;
    bool fragmentable = false;
    roce::IcrcFlow flow;
  };
  struct Connection {
    explicit Connection(roce::QueuePair pair) : queue_pair(std::move(pair)) {}
    roce::QueuePair queue_pair;
    Remote remote;
    const roce::QueuePairConfig* config = nullptr;
    bool connected = false;
    std::vector<Out> outs;      // by source port
    std::vector<In> ins;        // the peer's source ports that packets came from, as many as it has
    std::uint32_t next_in = 0;  // index in `ins` that a further one replaces
    std::unique_ptr<ReceiveQueue> receives;  // null: not counted
    LossPlan* loss = nullptr;
    TimePs delay = 0;
  };
  struct Sender {
    std::uint16_t port = 0;
    Socket socket;
  };
  struct Datagram {  // a packet on its way to the socket
    TimePs departure = 0;
    std::uint64_t number = 0;  // in the order of departure, which a delay must keep
    std::uint32_t connection = 0;
    std::uint8_t port = 0;  // index of the connection's source port
    std::uint32_t header_bytes = 0, payload_bytes = 0;
    const std::byte* payload = nullptr;
    std::array<std::byte, 40> header{};
    std::size_t size() const {
      return std::size_t{header_bytes} + payload_bytes + roce::pad_bytes(payload_bytes) + roce::kIcrcBytes;
    }
  };
  struct Timer {
    TimePs at;
    std::uint32_t queue_pair;
    bool operator>(const Timer& other) const {
      return std::tie(at, queue_pair) > std::tie(other.at, other.queue_pair);
    }
  };
  struct Later {
    bool operator()(const Datagram& a, const Datagram& b) const {
      return std::tie(a.departure, a.number) > std::tie(b.departure, b.number);
    }
  };
  struct Sink;
  friend struct Sink;

  bool holds(std::uint64_t address, std::uint64_t size_bytes, std::uint64_t limit) const {
    return address <= limit && size_bytes <= limit - address;
  }
  // A datagram that has come.
  struct Incoming {
    std::span<const std::byte> bytes;
    const sockaddr_storage& from;
    std::uint16_t identification = 0;  // of IPv4's header, or what ours would have
    bool identified = false;           // it was seen
    bool fragmentable = false;         // "don't fragment" is not set
    bool congested = false;
    TimePs time = 0;
  };
  std::string prepare();
  bool receive_datagrams();
  bool receive_packets();
  void datagram(const Incoming& incoming);
  Connection* connection_of(const roce::PacketHeader& header, const Incoming& incoming);
  void turn_away(std::uint64_t& counter, const char* name, const Incoming& incoming);
  void refused_packet(std::uint32_t queue_pair, const roce::Packet& packet, roce::Refusal refusal);
  bool icrc_right(Connection& connection, const Incoming& incoming);
  bool stage(TimePs now);
  void build(const roce::Packet& packet, std::uint32_t connection, TimePs departure, Datagram& out) const;
  void flush();
  void let_data_first();
  std::size_t run_length(std::size_t first) const;
  std::size_t send_run(std::size_t first);
  std::size_t refused(std::uint32_t connection, std::size_t count, int why);
  bool open_sender(std::uint32_t connection, std::uint32_t port);
  const roce::IcrcFlow& flow_from(Connection& connection, const Incoming& incoming);
  std::uint64_t in_memory(std::uint64_t address) const {
    return config_.address_bits >= 64 ? address : address & ((std::uint64_t{1} << config_.address_bits) - 1);
  }
  std::int64_t rate_at(TimePs now) const;

  NicConfig config_;
  NicOwner& owner_;
  std::int64_t epoch_ns_ = 0;
  Socket receiver_;
  HeaderSocket headers_;  // where it is open, what comes is taken from here
  std::deque<roce::QueuePairConfig> configs_;
  std::deque<Connection> connections_;
  std::vector<Sender> senders_;
  std::vector<std::byte> memory_;
  roce::NicPort port_;
  std::optional<Datagram> staged_;  // being serialised
  std::priority_queue<Datagram, std::vector<Datagram>, Later> delayed_;
  std::vector<Datagram> batch_;  // due, for the next flush
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<std::byte> receive_buffer_;
  std::span<const std::byte> payload_;  // of the packet being received
  std::vector<RateFault> rate_faults_;
  std::uint64_t datagrams_ = 0;  // staged so far
  int turn_ = 0;                 // packets of the queue pair whose turn it is, unpaced
  TimePs last_progress_ = 0;
  bool keep_trace_ = false;
  std::vector<TraceEntry> trace_;
  NicCounters counters_;
  std::optional<SendError> error_;
  std::string last_refusal_;  // of the system to send, which may pass
  QueuePairNumbers numbers_;
  const Incoming* incoming_ = nullptr;  // the packet being received
  RefusedSenders refused_senders_;
  std::optional<Ended> ended_;
};

}  // namespace genie::live
