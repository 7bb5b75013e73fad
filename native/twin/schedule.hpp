// All events of the twin. A logical process is a part of the network, a host or a switch as a rule, whose events
// happen in the order of (time, source); processes hear of each other only by packets, which take `lookahead`
// at least. So each may go through a window of that length on its own, in any order or at once: what it sends
// arrives after the window's end (Chandy and Misra, 1979; the windows are those of Lubachevsky, 1989).
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "twin/agenda.hpp"

namespace genie::twin {

class Schedule {
 public:
  // Sources of each process, in the order in which they win ties.
  void plan(const std::vector<std::vector<std::uint32_t>>& sources_of_process, std::uint32_t sources) {
    places_.assign(sources, Place{});
    agendas_.clear();
    sources_.clear();
    first_.clear();
    for (const std::vector<std::uint32_t>& own : sources_of_process) {
      const auto process = static_cast<std::uint32_t>(agendas_.size()), count = static_cast<std::uint32_t>(own.size());
      for (std::uint32_t at = 0; at < count; ++at) places_[own[at]] = {process, at};
      agendas_.emplace_back(count);
      first_.push_back(sources_.size());
      sources_.insert(sources_.end(), own.begin(), own.end());
    }
    processes_.resize(static_cast<std::uint32_t>(agendas_.size()));
  }

  std::uint32_t processes() const { return static_cast<std::uint32_t>(agendas_.size()); }
  std::uint32_t process_of(std::uint32_t source) const { return places_[source].process; }
  TimePs time_of(std::uint32_t source) const {
    return agendas_[places_[source].process].time_of(places_[source].at);
  }

  // The source's event is at `time`; kNever: it has none. Its process need not be told.
  void set(std::uint32_t source, TimePs time) { agendas_[places_[source].process].set(places_[source].at, time); }

  // The same, from another process.
  void set_afar(std::uint32_t source, TimePs time) {
    set(source, time);
    wake(places_[source].process, time);
  }

  // A process has something to do at `time`, maybe before what was known.
  void wake(std::uint32_t process, TimePs time) {
    if (time < processes_.time_of(process)) processes_.set(process, time);
  }

  // A process that is next; its time is forgotten, until rest() says it anew.
  TimePs next_time() const { return processes_.next_time(); }
  std::uint32_t take() {
    const std::uint32_t process = processes_.next_source();
    processes_.set(process, kNever);
    return process;
  }
  // The process has done all before its next event, or before `other`.
  void rest(std::uint32_t process, TimePs other) {
    const TimePs own = agendas_[process].next_time();
    processes_.set(process, own < other ? own : other);
  }

  Agenda& agenda(std::uint32_t process) { return agendas_[process]; }
  const std::uint32_t* sources(std::uint32_t process) const { return sources_.data() + first_[process]; }

 private:
  struct Place {
    std::uint32_t process = 0, at = 0;
  };
  std::vector<std::uint32_t> sources_;  // of all processes, one after another
  std::vector<std::size_t> first_;      // by process: its first
  std::vector<Place> places_;           // by source
  std::vector<Agenda> agendas_;         // by process
  Agenda processes_;                    // when each has something to do
};

}  // namespace genie::twin
