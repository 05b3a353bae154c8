"""What the page of a report shows beside the report itself: strips, flame graphs, curves. Typed, sampled, no layout."""
