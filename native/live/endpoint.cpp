#include "live/endpoint.hpp"

#include <algorithm>
#include <cstdio>

namespace genie::live {

// One round of the loop. With nothing that the caller would want to know it sleeps, at most until then.
void Endpoint::turn(TimePs until, bool spin) {
  happened_ = false;
  nic_.transmit(nic_.now());
  nic_.receive();
  nic_.fire_timers(nic_.now());
  if (happened_) return;  // the answer may leave together with the acknowledgement
  nic_.transmit(nic_.now());
  if (nic_.error() && error_.empty())
    error_ =
        "cannot send to " + nic_.remote(nic_.error()->queue_pair).address.text() + ": " + nic_.error()->text;
  if (!spin && !happened_) nic_.sleep(nic_.now(), std::min(until, nic_.next_due()));
}

std::vector<Event> Endpoint::poll(TimePs deadline) {
  do {
    turn(deadline, false);
  } while (events_.empty() && error_.empty() && nic_.now() < deadline);
  return std::exchange(events_, {});
}

Arrivals Endpoint::serve(TimePs deadline, std::uint64_t messages) {
  keep_events_ = false;
  while (arrivals_.messages < messages && error_.empty() && nic_.now() < deadline) turn(deadline, false);
  nic_.transmit(nic_.now());
  keep_events_ = true;
  return arrivals_;
}

TimePs Endpoint::stream(const Stream& stream, TimePs deadline) {
  keep_events_ = false;
  finished_.assign(nic_.queue_pairs(), 0);
  std::uint64_t posted = 0;
  const std::uint64_t first_over = over_;
  const TimePs began = nic_.now();
  const auto post = [&](std::uint32_t queue_pair) {
    if (posted == stream.messages || !error_.empty()) return;
    error_ = nic_.post(queue_pair, stream.request);
    ++posted;
  };
  for (std::uint32_t round = 0; round < stream.depth; ++round) {
    for (const std::uint32_t queue_pair : stream.queue_pairs) post(queue_pair);
  }
  while (over_ - first_over < stream.messages && error_.empty() && nic_.now() < deadline) {
    for (const std::uint32_t queue_pair : stream.queue_pairs) {
      for (; finished_[queue_pair] > 0; --finished_[queue_pair]) post(queue_pair);
    }
    turn(deadline, false);
  }
  keep_events_ = true;
  finished_.clear();
  return over_ - first_over == stream.messages && error_.empty() ? nic_.now() - began : -1;
}

std::vector<TimePs> Endpoint::pingpong(std::uint32_t queue_pair, const roce::SendRequest& request,
                                       std::uint64_t rounds, bool begins, bool spin, TimePs deadline) {
  keep_events_ = false;
  std::vector<TimePs> times;
  times.reserve(begins ? rounds : 0);
  const auto came = [&](std::uint64_t messages) {
    while (arrivals_.messages < messages && error_.empty() && nic_.now() < deadline) turn(deadline, spin);
    return arrivals_.messages >= messages;
  };
  const std::uint64_t before = arrivals_.messages;
  for (std::uint64_t round = 0; round < rounds && error_.empty(); ++round) {
    const TimePs start = nic_.now();
    if (!begins && !came(before + round + 1)) break;
    error_ = nic_.post(queue_pair, request);
    nic_.transmit(nic_.now());
    if (!begins) continue;
    if (!came(before + round + 1)) break;
    times.push_back(nic_.now() - start);
  }
  // The last answer has to arrive, whatever is lost.
  while (!begins && nic_.queue_pair(queue_pair).pending() > 0 && error_.empty() && nic_.now() < deadline)
    turn(deadline, spin);
  keep_events_ = true;
  return times;
}

void Endpoint::sent(std::uint32_t queue_pair, std::uint64_t handle, roce::Status status,
                    std::uint32_t retransmits, TimePs now) {
  ++over_;
  happened_ = true;
  if (queue_pair < finished_.size()) ++finished_[queue_pair];
  if (status != roce::Status::kOk && status != roce::Status::kFlushed && error_.empty()) {
    const roce::QueuePair& pair = nic_.queue_pair(queue_pair);
    char detail[96];
    std::snprintf(detail, sizeof detail, " (queue pair 0x%06x, PSN %u, syndrome 0x%02x)",
                  nic_.remote(queue_pair).qpn, pair.unacked_psn(), pair.last_syndrome());
    error_ = "gave up sending to " + nic_.remote(queue_pair).address.text() + ": " + roce::describe(status) +
             detail;
  }
  if (keep_events_)
    events_.push_back({.queue_pair = queue_pair,
                       .handle = handle,
                       .status = status,
                       .retransmits = retransmits,
                       .delivery = {},
                       .time = now});
}

void Endpoint::delivered(std::uint32_t queue_pair, const roce::Delivery& delivery, const Receive* receive,
                         TimePs now) {
  happened_ = true;
  if (arrivals_.messages++ == 0) arrivals_.first = delivery.first;
  arrivals_.bytes += delivery.size_bytes;
  arrivals_.last = now;
  if (receive == nullptr || !keep_events_) return;
  events_.push_back({.is_receive = true,
                     .queue_pair = queue_pair,
                     .handle = receive->handle,
                     .delivery = delivery,
                     .time = now});
}

}  // namespace genie::live
