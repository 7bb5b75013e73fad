// Transmit path of the soft NIC: from queue pairs through the line to sockets.
#include <netinet/udp.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "live/nic_buffers.hpp"
#include "live/nic_sink.hpp"

namespace genie::live {
namespace {

constexpr std::size_t kBatchMax = 128;  // datagrams handed to the kernel at once
constexpr int kUnpacedQuantum = 15;     // packets of one queue pair in a row when nothing is paced
constexpr std::size_t kSegmentBytesMax = 65000;

// A send that the system refuses may be right a moment later: then it is a lost packet, which the connection
// sends again. What no retry mends is the packet or the socket itself.
bool may_pass(int why) {
  switch (why) {
    case EMSGSIZE:
    case EINVAL:
    case EACCES:
    case EAFNOSUPPORT:
    case EOPNOTSUPP:
    case EBADF:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::int64_t SoftNic::rate_at(TimePs now) const {
  double rate = static_cast<double>(config_.rate_bps);
  for (const RateFault& fault : rate_faults_) {
    if (now >= fault.from && now < fault.until) rate *= fault.factor;
  }
  const auto whole = static_cast<std::int64_t>(rate);
  return config_.rate_bps == 0 ? 0 : std::max<std::int64_t>(whole, 1);  // 0 is no limit
}

// Takes the next packet into the serialiser; false when there is none.
bool SoftNic::stage(TimePs now) {
  roce::NicPort::Pick pick;
  while (port_.pick(now, pick)) {
    Connection& connection = connections_[pick.id];
    Sink sink{*this, connection, now};
    roce::Packet packet;
    const bool taken = pick.control ? connection.queue_pair.take_control(packet, sink)
                                    : connection.queue_pair.take_data(now, packet, sink);
    if (connection.queue_pair.has_control()) port_.mark_control(pick.id, now);
    if (!taken) continue;
    assert(packet.payload_bytes <= connection.config->mtu_bytes && packet.port < connection.outs.size());
    const std::uint32_t wire =
        roce::wire_bytes(packet.opcode, packet.payload_bytes, config_.frame_overhead_bytes);
    const TimePs serialisation = serialisation_ps(wire, rate_at(now));
    const TimePs departure = port_.depart(now, serialisation);
    staged_.emplace();
    staged_->number = datagrams_++;
    build(packet, pick.id, departure, *staged_);
    bool lost = false;
    if (!pick.control) {
      connection.queue_pair.departed(wire, departure - serialisation);
      if (connection.queue_pair.has_data()) {
        // Unpaced, one queue pair keeps its turn for as much as one offloaded send takes.
        const bool keep = config_.rate_bps == 0 && ++turn_ < kUnpacedQuantum;
        if (!keep) turn_ = 0;
        port_.mark_more(pick.id, keep, connection.queue_pair.data_from());
      } else {
        turn_ = 0;
      }
      lost = connection.loss != nullptr && connection.loss->lose_next();
    }
    if (keep_trace_) trace_.push_back({departure, pick.id, packet, lost});
    if (lost) {
      ++counters_.injected_losses;
      staged_->payload = nullptr;
      staged_->header_bytes = 0;  // takes its time on the line and goes nowhere
    }
    return true;
  }
  return false;
}

void SoftNic::build(const roce::Packet& packet, std::uint32_t connection, TimePs departure,
                    Datagram& out) const {
  roce::PacketHeader header;
  header.opcode = packet.opcode;
  header.ack_request = packet.ack_request;
  header.solicited = packet.solicited;
  header.becn = packet.opcode == roce::Opcode::kCnp || packet.echo;
  header.dest_qpn = connections_[connection].remote.qpn;
  header.psn = packet.psn;
  header.payload_bytes = packet.payload_bytes;
  header.reth = {.va = packet.remote_address, .rkey = packet.rkey, .length_bytes = packet.message_bytes};
  header.aeth = {.syndrome = packet.syndrome, .msn = packet.msn};
  header.imm = packet.immediate;
  out.departure = departure;
  out.connection = connection;
  out.port = packet.port;
  out.header_bytes = static_cast<std::uint32_t>(roce::encode_headers(header, out.header));
  assert(out.header_bytes > 0);
  assert(packet.payload_bytes == 0 || holds(packet.local_address, packet.payload_bytes, memory_.size()));
  out.payload_bytes = packet.payload_bytes;
  // The address of an answer without data is the peer's own word.
  out.payload = memory_.data() + (packet.payload_bytes > 0 ? packet.local_address : 0);
}

void SoftNic::transmit(TimePs now) {
  const bool paced = config_.rate_bps != 0;
  while (batch_.size() < kBatchMax) {
    if (!staged_ && !stage(now)) break;
    if (paced && staged_->departure > now) break;
    counters_.latest_departure = std::max(counters_.latest_departure, paced ? now - staged_->departure : 0);
    const TimePs delay = connections_[staged_->connection].delay;
    if (staged_->header_bytes == 0) {
      // lost
    } else if (delay == 0) {
      batch_.push_back(std::move(*staged_));
    } else {
      staged_->departure += delay;
      delayed_.push(std::move(*staged_));
    }
    staged_.reset();
  }
  while (!delayed_.empty() && delayed_.top().departure <= now) {
    batch_.push_back(delayed_.top());
    delayed_.pop();
  }
  flush();
}

// Unpaced, an acknowledgement lets the data of its connection that is due at the same time go first. A
// shorter packet can end an offloaded send and not begin it.
void SoftNic::let_data_first() {
  for (std::size_t at = 1; at < batch_.size(); ++at) {
    Datagram &before = batch_[at - 1], &after = batch_[at];
    const bool is_answer = before.header[0] == static_cast<std::byte>(roce::Opcode::kAcknowledge);
    if (is_answer && after.payload_bytes > 0 && before.connection == after.connection)
      std::swap(before, after);
  }
}

void SoftNic::flush() {
  if (config_.offload && config_.rate_bps == 0) let_data_first();
  for (std::size_t at = 0; at < batch_.size();) at += send_run(at);
  batch_.clear();
}

// Number of datagrams from `first` on that fit one offloaded send. They have one connection, source port and
// length, but the last may be shorter.
std::size_t SoftNic::run_length(std::size_t first) const {
  const std::size_t segment = batch_[first].size();
  std::size_t count = 1, total = segment;
  while (config_.offload && first + count < batch_.size() && count < kSegmentsMax) {
    const Datagram& next = batch_[first + count];
    const std::size_t size = next.size();
    if (next.connection != batch_[first].connection || next.port != batch_[first].port || size > segment ||
        total + size > kSegmentBytesMax)
      break;
    total += size;
    ++count;
    if (size < segment) break;
  }
  return count;
}

// Sends datagram `first`, and with it those after it that fit the same offloaded send; returns how many.
std::size_t SoftNic::send_run(std::size_t first) {
  const Datagram& head = batch_[first];
  const Connection& connection = connections_[head.connection];
  const Out& out = connection.outs[head.port];
  if (out.sender == kNoSender && !open_sender(head.connection, head.port)) return 1;
  const std::size_t count = run_length(first);
  iovec vectors[kSegmentsMax * 3];
  std::byte trailers[kSegmentsMax][8];
  std::size_t used = 0;
  for (std::size_t at = 0; at < count; ++at) {
    Datagram& datagram = batch_[first + at];
    const std::uint32_t pad = roce::pad_bytes(datagram.payload_bytes);
    const std::uint32_t icrc =
        out.flow.icrc({datagram.header.data(), datagram.header_bytes},
                      {datagram.payload, datagram.payload_bytes}, static_cast<std::uint16_t>(at));
    std::memset(trailers[at], 0, pad);
    roce::store_icrc(icrc, trailers[at] + pad);
    vectors[used++] = {datagram.header.data(), datagram.header_bytes};
    if (datagram.payload_bytes > 0)
      vectors[used++] = {const_cast<std::byte*>(datagram.payload), datagram.payload_bytes};
    vectors[used++] = {trailers[at], pad + roce::kIcrcBytes};
  }
  sockaddr_storage target;
  msghdr message{};
  message.msg_namelen = connection.remote.address.fill(target, config_.port);
  message.msg_name = &target;
  message.msg_iov = vectors;
  message.msg_iovlen = used;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(std::uint16_t))] = {};
  if (count > 1) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_UDP;
    item->cmsg_type = UDP_SEGMENT;
    item->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto value = static_cast<std::uint16_t>(head.size());
    std::memcpy(CMSG_DATA(item), &value, sizeof value);
  }
  const ssize_t sent = sendmsg(senders_[out.sender].socket.get(), &message, MSG_NOSIGNAL);
  ++counters_.send_calls;
  if (sent < 0) return refused(head.connection, count, errno);
  counters_.datagrams_sent += count;
  counters_.bytes_sent += static_cast<std::uint64_t>(sent);
  return count;
}

// Handles a send that the system refuses. Returns the number of datagrams to skip; 0: the device cannot
// segment, and the caller sends them one by one.
std::size_t SoftNic::refused(std::uint32_t connection, std::size_t count, int why) {
  if (count > 1 && (why == EIO || why == EINVAL)) {  // one by one from now on
    config_.offload = false;
    counters_.offload_refused = 1;
    return 0;
  }
  if (may_pass(why)) {
    last_refusal_ = std::strerror(why);
  } else if (!error_) {
    error_ = SendError{connection, std::strerror(why)};
  }
  return count;
}

}  // namespace genie::live
