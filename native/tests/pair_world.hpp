// Two queue pairs, the packets between them and their timers, in the hands of a test.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "roce/queue_pair.hpp"

namespace genie::test {

using roce::Packet;
using roce::psn_add;
using roce::psn_diff;
using roce::QueuePair;
using roce::QueuePairConfig;
using roce::SendRequest;
using roce::Status;
using roce::Verb;

constexpr TimePs kTimeout = 1000;

inline QueuePairConfig small_config() {
  QueuePairConfig config;
  config.mtu_bytes = 8;
  config.window_packets = 8;
  config.ack_every_packets = 3;
  config.ack_timeout = kTimeout;
  config.rnr_unit = 1;
  config.rnr_timer = 9;  // 24
  return config;
}

inline Packet response(std::uint8_t syndrome, std::uint32_t psn) {
  Packet packet;
  packet.syndrome = syndrome;
  packet.psn = psn;
  return packet;
}

struct Posted {
  SendRequest request;
  bool over = false;
  Status status = Status::kOk;
};

// One end. A message's handle is its number. Its payload is known by local addresses that start at handle <<
// 32. A WRITE goes to remote addresses that start at (handle << 32) + 5.
struct End {
  End(const QueuePairConfig& config, std::uint32_t first_psn, std::uint32_t peer_first_psn)
      : pair(config, 0, first_psn, peer_first_psn), top_psn(first_psn) {}

  QueuePair pair;
  std::uint32_t top_psn;  // after the highest that was sent
  // State of a NIC port: a driver asks only queue pairs that have reported that they are ready, or had more.
  bool control_marked = false, data_marked = false;
  void mark() {
    control_marked = control_marked || pair.has_control();
    data_marked = data_marked || pair.has_data();
  }
  std::vector<Posted> posted;
  std::vector<Packet> arriving;       // packets on their way here
  std::set<std::uint32_t> read_psns;  // of the READs that it has sent
  std::multiset<TimePs> timers;
  std::uint64_t arms = 0;
  std::int64_t receives = -1;
  bool writable = true;
  // Received from the peer.
  std::uint64_t delivered = 0, placed_bytes = 0, fetched_bytes = 0;
};

struct World {
  World(const QueuePairConfig& its_config, std::uint32_t psn_a, std::uint32_t psn_b, std::string its_name)
      : config(knowing_the_window(its_config)),
        name(std::move(its_name)),
        ends{{config, psn_a, psn_b}, {config, psn_b, psn_a}} {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // No packet of one end seems forged to the other, for any behaviour of the network.
  static QueuePairConfig knowing_the_window(QueuePairConfig config) {
    config.peer_window_packets = config.window_packets;
    return config;
  }

  struct Sink {
    World& world;
    End &end, &peer;

    void ready(QueuePair& pair) {
      CHECK_IN(pair.has_control() || pair.has_data(), world.name);
      end.mark();
    }
    void arm_timer(QueuePair&, TimePs at) {
      CHECK_IN(at >= world.now, world.name);
      end.timers.insert(at);
      ++end.arms;
    }
    void sent(QueuePair&, std::uint64_t handle, Status status, std::uint32_t) {
      Posted& message = end.posted.at(handle);
      CHECK_IN(!message.over, world.name);
      CHECK_IN(handle == 0 || end.posted[handle - 1].over, world.name);  // completions come in order
      message.over = true;
      message.status = status;
      if (status != Status::kOk) return;
      if (message.request.verb != Verb::kRead) {
        CHECK_IN(peer.delivered > handle, world.name);
        return;
      }
      CHECK_EQUAL_IN(end.fetched_bytes, std::uint64_t{message.request.size_bytes}, world.name);
      end.fetched_bytes = 0;
    }
    bool may_write(QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return end.writable; }
    bool may_read(QueuePair&, std::uint32_t, std::uint64_t, std::uint32_t) { return end.writable; }
    bool readable(QueuePair&) { return true; }
    // A READ may be dropped only once its requester has its data: one that comes long after later ones.
    void refused(QueuePair&, const Packet& packet, roce::Refusal refusal) {
      CHECK_IN(refusal != roce::Refusal::kTooFarAhead, world.name);
      if (refusal == roce::Refusal::kRead)
        CHECK_IN(peer.posted.at(packet.remote_address >> 32).over, world.name);
    }
    std::int64_t receives_left(QueuePair&) { return world.credits ? end.receives : -1; }
    bool take_receive(QueuePair&) { return end.receives < 0 || end.receives-- > 0 || (end.receives = 0); }
    bool place(QueuePair&, const Packet& packet, std::uint64_t address) {
      const std::uint64_t message = next_message();
      const SendRequest& request = peer.posted.at(message).request;
      CHECK_EQUAL_IN(packet.local_address, (message << 32) + end.placed_bytes, world.name);
      const bool is_send = request.verb == Verb::kSend || request.verb == Verb::kSendImm;
      CHECK_EQUAL_IN(address, end.placed_bytes + (is_send ? 0 : (message << 32) + 5), world.name);
      end.placed_bytes += packet.payload_bytes;
      return true;
    }
    // Data of the oldest READ, in order and from where the READ said.
    void fetched(QueuePair&, const Packet& packet, std::uint64_t address) {
      std::uint64_t oldest = 0;
      while (end.posted.at(oldest).over) ++oldest;
      const Posted& read = end.posted[oldest];
      CHECK_IN(read.request.verb == Verb::kRead, world.name);
      CHECK_EQUAL_IN(address, read.request.local_address + end.fetched_bytes, world.name);
      CHECK_EQUAL_IN(packet.local_address, read.request.remote_address + end.fetched_bytes, world.name);
      end.fetched_bytes += packet.payload_bytes;
    }
    // The message of the peer's that is due here: READs are not delivered.
    std::uint64_t next_message() {
      while (peer.posted.at(end.delivered).request.verb == Verb::kRead) ++end.delivered;
      return end.delivered;
    }
    void delivered(QueuePair&, const roce::Delivery& delivery) {
      const SendRequest& request = peer.posted.at(next_message()).request;
      CHECK_EQUAL_IN(end.placed_bytes, std::uint64_t{request.size_bytes}, world.name);
      CHECK_EQUAL_IN(delivery.size_bytes, request.size_bytes, world.name);
      CHECK_EQUAL_IN(delivery.has_immediate,
                     request.verb == Verb::kSendImm || request.verb == Verb::kWriteImm, world.name);
      if (delivery.has_immediate) CHECK_EQUAL_IN(delivery.immediate, request.immediate, world.name);
      CHECK_EQUAL_IN(delivery.is_send, request.verb == Verb::kSend || request.verb == Verb::kSendImm,
                     world.name);
      ++end.delivered;
      end.placed_bytes = 0;
    }
  };

  Sink sink(int at) { return {*this, ends[at], ends[1 - at]}; }

  void post(int at, Verb verb, std::uint32_t size_bytes) {
    End& end = ends[at];
    const std::uint64_t handle = end.posted.size();
    const SendRequest request{verb,
                              false,
                              handle,
                              size_bytes,
                              static_cast<std::uint32_t>(handle * 7 + 1),
                              handle << 32,
                              (handle << 32) + 5,
                              0};
    end.posted.push_back({request});
    Sink s = sink(at);
    end.pair.post(request, s);
    look(at);
  }

  // Takes what an end has to say onto the wire: control first. False when it has nothing.
  bool send(int at) {
    End &end = ends[at], &peer = ends[1 - at];
    Sink s = sink(at);
    Packet packet;
    const bool control = end.control_marked && end.pair.take_control(packet, s);
    end.control_marked = false;
    if (control) {
      end.mark();
      const bool positive = packet.opcode == roce::Opcode::kAcknowledge &&
                            (packet.syndrome & roce::kSyndromeKind) == roce::kSyndromePositive;
      CHECK_IN(!positive || !peer.read_psns.contains(packet.psn), name);  // its data acknowledges a READ
      peer.arriving.push_back(packet);
      return true;
    }
    const bool data = end.data_marked && end.pair.take_data(now, packet, s);
    end.data_marked = false;
    end.mark();
    if (!data) return false;
    if (!roce::is_read_response(packet.opcode) && psn_diff(packet.psn, end.top_psn) >= 0) {
      CHECK_EQUAL_IN(packet.psn, end.top_psn, name);  // no PSN is left out
      const std::uint32_t answers = (std::max(packet.message_bytes, 1u) - 1) / config.mtu_bytes + 1;
      const bool is_read = packet.opcode == roce::Opcode::kReadRequest;
      end.top_psn = psn_add(packet.psn, is_read ? answers : 1);
      for (std::uint32_t answer = 0; is_read && answer < answers; ++answer)
        end.read_psns.insert(psn_add(packet.psn, answer));
    }
    peer.arriving.push_back(packet);
    look(at);
    return true;
  }

  void receive(int at, const Packet& packet) {
    Sink s = sink(at);
    ends[at].pair.receive(packet, now, s);
    look(at);
  }

  // Delivers packet number `which` of those on their way; it stays there too when `keep`.
  void deliver(int at, std::size_t which, bool keep = false) {
    std::vector<Packet>& arriving = ends[at].arriving;
    const Packet packet = arriving.at(which);
    if (!keep) arriving.erase(arriving.begin() + static_cast<std::ptrdiff_t>(which));
    receive(at, packet);
  }

  void fire(int at) {
    End& end = ends[at];
    const TimePs due = *end.timers.begin();
    now = std::max(now, due);
    end.timers.erase(end.timers.begin());
    Sink s = sink(at);
    end.pair.timer(now, s);
    look(at);
  }

  // Invariants that hold at any moment.
  void look(int at) {
    const End& end = ends[at];
    const QueuePair& pair = end.pair;
    const std::int32_t in_flight = psn_diff(pair.send_psn(), pair.unacked_psn());
    const bool reads = std::any_of(end.posted.begin(), end.posted.end(),
                                   [](const Posted& m) { return !m.over && m.request.verb == Verb::kRead; });
    const bool over = pair.state() == roce::RequesterState::kError;  // nothing is in flight any more
    CHECK_IN(
        in_flight >= 0 && (over || reads || in_flight <= static_cast<std::int32_t>(config.window_packets)),
        name);
    CHECK_IN(psn_diff(end.top_psn, pair.send_psn()) >= 0, name);
    const auto done =
        std::count_if(end.posted.begin(), end.posted.end(), [](const Posted& m) { return m.over; });
    CHECK_EQUAL_IN(pair.pending(), end.posted.size() - static_cast<std::size_t>(done), name);
    CHECK_EQUAL_IN(pair.state() == roce::RequesterState::kIdle && pair.pending() == 0,
                   pair.state() != roce::RequesterState::kError && pair.pending() == 0, name);
    // The port knows of every queue pair that has something to send.
    CHECK_IN(!pair.has_control() || end.control_marked, name);
    CHECK_IN(!pair.has_data() || end.data_marked, name);
    // A queue pair with pending messages can go on: a lost packet never makes it hang.
    if (pair.pending() > 0) CHECK_IN(pair.has_data() || !end.timers.empty(), name);
  }

  // From now on nothing is lost: plays until nothing is left to do.
  void finish() {
    for (bool busy = true; busy;) {
      busy = false;
      for (int at : {0, 1}) {
        ends[at].receives = -1;
        while (send(at)) busy = true;
        while (!ends[1 - at].arriving.empty()) {
          deliver(1 - at, 0);
          busy = true;
        }
      }
      if (busy) continue;
      for (int at : {0, 1}) {
        if (ends[at].pair.pending() == 0 || ends[at].timers.empty()) continue;
        fire(at);
        busy = true;
      }
    }
  }

  QueuePairConfig config;
  std::string name;
  bool credits = false;  // acknowledgements say how many receives are left
  TimePs now = 0;
  End ends[2];
};

}  // namespace genie::test
